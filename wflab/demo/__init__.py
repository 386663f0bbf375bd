"""A payment provider for lessons: a small local server that Stripe's own client talks to, and that can misbehave."""

from wflab.demo.faults import Hold
from wflab.demo.ledger import Request
from wflab.demo.provider import PaymentProvider

__all__ = ["Hold", "PaymentProvider", "Request"]
