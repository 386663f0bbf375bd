"""`python -m wflab.demo [PORT]`: the payment provider in the foreground."""

from __future__ import annotations

import argparse
import threading

from wflab.demo import PaymentProvider

parser = argparse.ArgumentParser(prog="python -m wflab.demo", description="A payment provider for lessons.")
parser.add_argument("port", nargs="?", type=int, default=4242)
parser.add_argument("--books", default=None, help="the SQLite file of its books (in memory when not given)")
arguments = parser.parse_args()
with PaymentProvider(arguments.books, port=arguments.port) as provider:
    print(f"the payment provider listens on {provider.base_url}; stop it with Ctrl-C")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("closed")
