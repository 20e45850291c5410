"""A small process that listens on a port, instead of a host's Spark."""

from __future__ import annotations

import subprocess
import sys

from deltafold.spark.host.address import Host
from deltafold.spark.host.process import start_of

LISTEN = """
import socket, sys
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen(5)
print(server.getsockname()[1], flush=True)
while True:
    link = server.accept()[0]
    if sys.argv[1] == "silent":
        kept = link  # and says nothing
        continue
    told = link.recv(100)
    link.sendall(b"!yv\\n" if told == b"A\\ns3cret\\n" else b"!x\\n")
"""


class Listener:
    """A process that listens on a port, as a host's Java does."""

    def __init__(self, options: str) -> None:
        command = [sys.executable, "-c", LISTEN, options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    @property
    def host(self) -> Host:
        return Host(self.process.pid, start_of(self.process.pid) or "", self.port, "s3cret")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
