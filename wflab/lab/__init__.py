"""wflab in a notebook: the `%%workflow` cell magic, `%wf`, and what they show. Nothing else imports this package."""

from wflab.lab.extension import load, unload

__all__ = ["load", "unload"]
