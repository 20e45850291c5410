"""Stand between Spark and an S3 server, and do to some requests what a busy store and a bad network do."""

from __future__ import annotations

import random
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Hurdle(ThreadingHTTPServer):
    """A proxy of a port; share: of the requests to be refused as by a busy store, and as many whose reply is lost."""

    daemon_threads = True

    def __init__(self, port: int, share: float) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.behind, self.share, self._dice = port, share, random.Random(7)
        self.refused, self.lost, self._counting = 0, 0, threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def fate(self) -> str:
        """Return what happens to the next request: `refused`, `lost` or `kept`."""
        with self._counting:
            thrown = self._dice.random()
            self.refused += thrown < self.share
            self.lost += self.share <= thrown < 2 * self.share
        return "refused" if thrown < self.share else "lost" if thrown < 2 * self.share else "kept"


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hurdle

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fate = self.server.fate()
        if fate == "refused":
            self._reply(503, [("Content-Length", str(len(SLOW_DOWN)))], SLOW_DOWN)
            return
        behind = HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            behind.putheader(name, value)
        behind.endheaders(body)
        reply = behind.getresponse()
        content = reply.read()
        behind.close()
        if fate == "lost":  # the store has done it, and nobody is told
            self.close_connection = True
            return
        headers = [(name, value) for name, value in reply.getheaders() if name.lower() != "transfer-encoding"]
        if not any(name.lower() == "content-length" for name, _ in headers) and reply.status != 204:
            headers.append(("Content-Length", str(len(content))))
        self._reply(reply.status, headers, content)

    def _reply(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
