"""`python -m wflab.demo [PORT]`: the payment provider in the foreground."""

from __future__ import annotations

import argparse
import threading

from wflab.demo import PaymentProvider


def main() -> None:
    """Run the provider until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m wflab.demo", description="A payment provider for lessons.")
    parser.add_argument("port", nargs="?", type=int, default=4242, help="4242 when not given; any free one when 0")
    parser.add_argument("--books", metavar="FILE", help="the SQLite file of its books (in memory when not given)")
    arguments = parser.parse_args()
    provider = PaymentProvider(arguments.books, port=arguments.port)
    try:
        provider.start()
    except (OSError, OverflowError) as taken:
        parser.error(f"can't listen on port {arguments.port}: {taken}")
    with provider:
        print(f"The payment provider listens on {provider.base_url}. Ctrl-C ends it.", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("closed")


if __name__ == "__main__":
    main()
