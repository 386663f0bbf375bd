"""HTTP in front of the service: Stripe's form encoding, headers and JSON."""

from __future__ import annotations

import json
import secrets
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from wflab.demo.ledger import Answer
from wflab.demo.service import DroppedError, Service, invalid

__all__ = ["Server", "parse_form"]


def parse_form(text: str) -> dict[str, Any]:
    """Form fields as Stripe's clients write them: `metadata[order]=42` is a field of `metadata`."""
    fields: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        outer, bracket, inner = name.partition("[")
        if bracket and isinstance(fields.setdefault(outer, {}), dict):
            fields[outer][inner.removesuffix("]")] = value
        else:
            fields[outer] = value
    return fields


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Reads."""
        self._serve(urlsplit(self.path).query)

    def do_POST(self) -> None:
        """Writes."""
        length = int(self.headers.get("Content-Length") or 0)
        self._serve(self.rfile.read(length).decode())

    def _serve(self, form: str) -> None:
        if not self.headers.get("Authorization", "").startswith("Bearer sk_"):
            self._reply(invalid("You did not provide an API key.", status=401))
            return
        try:
            path = urlsplit(self.path).path
            key = self.headers.get("Idempotency-Key")
            self._reply(self.server.service.answer(self.command, path, parse_form(form), key))
        except DroppedError:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def _reply(self, answer: Answer) -> None:
        body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Request-Id", f"req_{secrets.token_hex(7)}")
        if answer.is_replayed:
            self.send_header("Idempotent-Replayed", "true")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The books tell what came in; a notebook's output need not."""


class Server(ThreadingHTTPServer):
    """The provider on a port of this machine; each connection has a thread."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, service: Service, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.service = service
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember a connection, so that closing ends it."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """A connection has ended."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of our business; anything else is told as ever."""
        if not isinstance(sys.exception(), ConnectionError | OSError):
            super().handle_error(request, client_address)

    def end_connections(self) -> None:
        """Close what is still open."""
        for connection in list(self._connections):
            self.shutdown_request(connection)
