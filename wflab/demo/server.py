"""HTTP in front of the service: Stripe's form encoding, headers and JSON; connections that end when it closes."""

from __future__ import annotations

import json
import logging
import secrets
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from wflab.demo.answers import Answer, DroppedError, RefusedError, server_error
from wflab.demo.service import Service

__all__ = ["Server", "parse_form"]

MAX_BODY_BYTES = 1_000_000
MAX_DEPTH = 8
_JOIN_S = 15.0  # longer than the ledger waits for its file

_log = logging.getLogger(__name__)


def parse_form(text: str) -> dict[str, Any]:
    """Form fields as Stripe's clients write them: `metadata[order]=42` is a field of `metadata`, `expand[]=x` an item.

    Raises:
        RefusedError: a field is both a value and a hash, or nested too deep.
    """
    fields: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        outer, *inner = name.replace("]", "").split("[")
        if len(inner) > MAX_DEPTH:
            raise RefusedError(f"Invalid object: {outer} is nested too deep.", param=outer)
        at, last = fields, outer
        for part in inner:
            at = at.setdefault(last, {})
            if not isinstance(at, dict):
                raise RefusedError(f"Invalid object: {outer} is given as a value, too.", param=outer)
            last = part or str(len(at))
        if isinstance(at.get(last), dict):
            raise RefusedError(f"Invalid string: {outer} is given as a hash, too.", param=outer)
        at[last] = value
    return fields


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "wflab-demo", ""
    # A reply in one piece, sent at once: in two it would wait for the client's delayed acknowledgement, 40 ms.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: Server

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        fields: dict[str, Any] = {}
        refusal = None
        try:
            body = self._body()
            if not self.headers.get("Authorization", "").startswith(("Bearer sk_", "Basic ")):
                raise RefusedError("You did not provide an API key.", status=401)
            fields = parse_form(parts.query if self.command == "GET" else body)
        except RefusedError as refused:
            refusal = refused
        key = self.headers.get("Idempotency-Key")
        try:
            answer = self.server.service.answer(self.command, unquote(parts.path), fields, key, refusal=refusal)
        except DroppedError:
            self.close_connection = True
            return
        except Exception:  # noqa: BLE001 (it is logged, and the client is told)
            # A fault of this program, not one that a lesson asked for: the client gets its 500, the log the traceback.
            _log.exception("%s %s", self.command, self.path)
            answer = server_error(500)
        self._reply(answer)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _body(self) -> str:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            self.close_connection = True
            raise RefusedError("A request needs a Content-Length.", status=411)
        if int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            raise RefusedError(f"A request has at most {MAX_BODY_BYTES} bytes.", status=413)
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            raise RefusedError("The request ended half-way.")  # half a form can be a whole one of another meaning
        try:
            return body.decode()
        except UnicodeDecodeError:
            raise RefusedError("A request's body is a form in UTF-8.") from None

    def _reply(self, answer: Answer) -> None:
        body = json.dumps(answer.body, indent=2).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Request-Id", f"req_{secrets.token_hex(7)}")
        for echoed in ("Idempotency-Key", "Stripe-Version"):
            if echoed in self.headers:
                self.send_header(echoed, self.headers[echoed])
        if answer.is_replayed:
            self.send_header("Idempotent-Replayed", "true")
        if answer.status >= 500 and "Idempotency-Key" in self.headers:
            self.send_header("Stripe-Should-Retry", "false")  # the key would only get the same answer again
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the books tell what came in."""


class Server(ThreadingHTTPServer):
    """The provider on a port of this machine; each connection has a thread."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, service: Service, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.service = service
        self._connections: dict[Any, threading.Thread] = {}
        self._lock = threading.Lock()
        self._accepting = threading.Thread(target=self.serve_forever, args=(0.02,), name="payments", daemon=True)

    def server_bind(self) -> None:
        """Bind, without the look-up of the host's name that `HTTPServer` does: it takes seconds on some machines."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def start(self) -> None:
        """Accept connections, on a thread."""
        self._accepting.start()

    def stop(self) -> None:
        """Close: nothing is accepted any more, connections end, and with them whatever is still worked on."""
        self.shutdown()
        self.service.close()
        with self._lock:
            open_ = dict(self._connections)
        for connection in open_:
            _end(connection)
        for thread in open_.values():
            thread.join(_JOIN_S)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its thread, and remember both."""
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        with self._lock:
            self._connections[request] = thread
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            self._connections.pop(request, None)
        _end(request)
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of our business; anything else goes to the log."""
        if not isinstance(sys.exception(), OSError):
            _log.exception("connection from %s", client_address)


def _end(connection: socket.socket) -> None:
    # The other side may have been faster; then there's nothing left to end.
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as gone:
        _log.debug("connection already ended: %s", gone)
