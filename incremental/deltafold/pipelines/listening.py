"""Listen on a socket for lines, store them in files that a `Files` source lands, and acknowledge what is on the disk.

A client sends lines of UTF-8 that end with a newline, and reads `ok N`: its first N lines are stored. Lines that were
not acknowledged may be stored or not, so a client that sends them again may store them twice. All clients share one
writer, which takes the lines that wait, flushes them to the disk once, and acknowledges them. The bytes that wait are
bounded: a client that sends faster than the disk takes is read more slowly.

    FOLDER/minute=2024-05-01T10%3A07%3A00Z/.lines-….part      being written; landings ignore names that begin with a dot
    FOLDER/minute=2024-05-01T10%3A07%3A00Z/lines-….txt        complete: renamed when its minute is over or it is large

So a landing never reads half a file. What a crash leaves hidden is completed by the next start.
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import os
import signal
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from deltafold.algebra.errors import BusyError, StorageError
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.spark.local_files import flush_folder

COLUMN = "minute"
LARGEST_SPOOL_FILE = 64 << 20
HIDDEN_SUFFIX = ".part"
SUFFIX = ".txt"
BLOCK_BYTES = 1 << 20
READ_BYTES = 1 << 16
Clock = Callable[[], float]


def minute_of(seconds: float) -> str:
    """Return the partition of a moment: its minute in UTC, which Spark reads as a timestamp or as text."""
    return time.strftime("%Y-%m-%dT%H:%M:00Z", time.gmtime(seconds))


@dataclass
class SpoolPart:
    """A file that is being written: its minute, its hidden path, its descriptor and its bytes on the disk."""

    minute: str
    path: Path
    descriptor: int
    size: int = 0

    def write(self, lines: bytes) -> None:
        """Write lines and flush them to the disk; if that fails, the file keeps what it had."""
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]
            os.fsync(self.descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self.descriptor, self.size)
            raise
        self.size += len(lines)


class Spool:
    """Writes the lines of one listener into files of its folder, where nobody else writes; not for concurrent threads.

    Raises BusyError if another listener writes there, and OSError if a line cannot be written.
    """

    def __init__(self, folder: Path, largest: int = LARGEST_SPOOL_FILE) -> None:
        self.folder = folder
        self._largest = largest
        self._part: SpoolPart | None = None
        self._made = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder / ".listening", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise BusyError(f"{folder}: another listener writes to it. Choose another folder.") from error
        self.recover()

    def append(self, lines: bytes, minute: str) -> None:
        """Add lines that each end with a newline to the file of a minute; they are on the disk when it returns."""
        if self._part is not None and (self._part.minute != minute or self._part.size >= self._largest):
            self.finish()
        self._part = self._part or self._begin(minute)
        self._part.write(lines)

    def finish(self, before: str | None = None) -> None:
        """Make the open file visible; before: only if its minute is another one."""
        part = self._part
        if part is None or part.minute == before:
            return
        self._part = None
        os.close(part.descriptor)
        _complete_file(part.path)

    def recover(self) -> int:
        """Complete the files that a crash left hidden; returns their number."""
        hidden = sorted(self.folder.glob(f"{COLUMN}=*/.*{HIDDEN_SUFFIX}"))
        for path in hidden:
            cut_incomplete_line(path)
            _complete_file(path)
        return len(hidden)

    def close(self) -> None:
        """Complete the open file and release the folder."""
        try:
            self.finish()
        finally:
            os.close(self._lock)

    def _begin(self, minute: str) -> SpoolPart:
        self._made += 1
        partition = self.folder / f"{COLUMN}={quote(minute, safe='')}"
        if not partition.is_dir():
            partition.mkdir()
            flush_folder(self.folder)
        path = partition / f".lines-{time.time_ns()}-{os.getpid()}-{self._made}{HIDDEN_SUFFIX}"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)
        flush_folder(partition)
        return SpoolPart(minute, path, descriptor)


def _complete_file(path: Path) -> None:
    """Rename a hidden file to its visible name; one without lines is removed."""
    if path.stat().st_size:
        path.rename(path.with_name(path.name.removeprefix(".").removesuffix(HIDDEN_SUFFIX) + SUFFIX))
    else:
        path.unlink()
    flush_folder(path.parent)


def cut_incomplete_line(path: Path) -> None:
    """Remove what follows the last newline of a file: a line that was not acknowledged."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - BLOCK_BYTES)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a listener.

    longest: bytes of a line; connections: clients at once; waiting: bytes that wait for the disk; tick: seconds between
    two looks at the clock; goodbye: seconds that a client has to read its last acknowledgement.
    """

    longest: int = 1 << 20
    connections: int = 100
    waiting: int = 8 << 20
    tick: float = 1.0
    goodbye: float = 10.0


@dataclass(eq=False)
class Client:
    """A connection: its lines received, and those that are on the disk."""

    writer: asyncio.StreamWriter
    received: int = 0
    stored: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def acknowledge(self, lines: int) -> None:
        """Count lines as stored, and send their number; to a client that does not read it is sent with a later one."""
        self.stored += lines
        if self.writer.transport.get_write_buffer_size() < READ_BYTES:
            self.say(f"ok {self.stored}")
        if self.stored == self.received:
            self.done.set()

    def say(self, text: str) -> None:
        """Send a line to the client; one that is gone does not hear it."""
        with suppress(OSError, RuntimeError):
            self.writer.write(f"{text}\n".encode())


@dataclass
class Listener:
    """Takes lines into a spool until it is stopped."""

    spool: Spool
    limits: Limits = field(default_factory=Limits)
    clock: Clock = time.time

    def __post_init__(self) -> None:
        self._waiting: list[tuple[Client, bytes, int]] = []
        self._bytes = 0
        self._changed = asyncio.Condition()
        self._clients: set[Client] = set()
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Take no more lines; `serve` returns when those that were taken are stored."""
        self._stopped.set()

    async def serve(self, host: str, port: int, ready: Callable[[str], None]) -> None:
        """Listen until stopped; ready: is called with the address. Raises StorageError if lines cannot be written."""
        server = await asyncio.start_server(self._connected, host, port, limit=READ_BYTES)
        writing = asyncio.create_task(self._write())
        ready(":".join(map(str, server.sockets[0].getsockname()[:2])))
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({writing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.close()
            self.stop()
            stopped.cancel()
            async with self._changed:
                self._changed.notify_all()
            try:
                await writing
            finally:
                await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        """Close all connections; a client may read what was acknowledged before."""
        for client in self._clients:
            client.writer.close()
        closing = [asyncio.create_task(client.writer.wait_closed()) for client in self._clients]
        if closing:
            await asyncio.wait(closing, timeout=self.limits.goodbye)
        for client in self._clients:
            client.writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(writer)
        if len(self._clients) >= self.limits.connections:
            client.say(f"error: {self.limits.connections} clients are connected, which is the limit")
            await self._hang_up(reader, writer)
            return
        self._clients.add(client)
        try:
            fault = await self._receive(client, reader)
            if client.stored < client.received:
                await client.done.wait()
            client.say(f"ok {client.stored}")
            if fault:
                client.say(f"error: {fault}")
                self._clients.discard(client)  # it may connect again once it has read that
                await self._hang_up(reader, writer)
            else:
                async with asyncio.timeout(self.limits.goodbye):
                    await writer.drain()
        except (OSError, TimeoutError):
            pass  # the client is gone: what was not sent to it is not acknowledged
        finally:
            self._clients.discard(client)
            writer.close()

    async def _hang_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """End a connection of which not all was read: closed at once, it is reset, and the error may be lost."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self.limits.goodbye):
                await writer.drain()
                writer.write_eof()
                while await reader.read(READ_BYTES):
                    pass
        writer.close()

    async def _receive(self, client: Client, reader: asyncio.StreamReader) -> str:
        """Queue the lines of a client until it ends; returns what is wrong with a line, or nothing."""
        rest = b""
        while not self._stopped.is_set() and (read := await reader.read(READ_BYTES)):
            lines, newline, rest = (rest + read).rpartition(b"\n")
            if newline:
                fault, lines, number = self._acceptable(lines + newline, client.received)
                await self._queue(client, lines, number)
                if fault:
                    return fault
            if len(rest) > self.limits.longest:
                return self._too_long(client.received + 1)
        return ""

    def _acceptable(self, lines: bytes, before: int) -> tuple[str, bytes, int]:
        """Return the first fault of lines, those before it, and their number."""
        number = lines.count(b"\n")
        try:
            lines.decode()
            if max(map(len, lines.split(b"\n"))) <= self.limits.longest:
                return "", lines, number
        except UnicodeDecodeError:
            pass
        good = 0
        for position, line in enumerate(lines.split(b"\n")[:-1]):
            if len(line) > self.limits.longest:
                return self._too_long(before + position + 1), lines[:good], position
            try:
                line.decode()
            except UnicodeDecodeError:
                return f"line {before + position + 1} is not UTF-8", lines[:good], position
            good += len(line) + 1
        return "", lines, number

    def _too_long(self, line: int) -> str:
        return f"line {line} has more than {self.limits.longest:,} bytes"

    async def _queue(self, client: Client, lines: bytes, number: int) -> None:
        if not number:
            return
        client.received += number
        client.done.clear()
        async with self._changed:
            await self._changed.wait_for(lambda: self._bytes < self.limits.waiting)
            self._waiting.append((client, lines, number))
            self._bytes += len(lines)
            self._changed.notify_all()

    async def _write(self) -> None:
        """Store what waits, then acknowledge it; completes a file when its minute is over."""
        while True:
            async with self._changed:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.limits.tick):
                        await self._changed.wait_for(lambda: self._waiting or self._stopped.is_set())
                batch = self._waiting
                self._waiting = []
                self._bytes = 0
                self._changed.notify_all()
            await asyncio.to_thread(self._store, b"".join(lines for _, lines, _ in batch))
            for client, _, number in batch:
                client.acknowledge(number)
            if self._stopped.is_set() and not self._waiting:
                return

    def _store(self, lines: bytes) -> None:
        minute = minute_of(self.clock())
        with storing(self.spool.folder):
            if lines:
                self.spool.append(lines, minute)
            self.spool.finish(before=minute)


def address_of(text: str, *, remote: bool) -> tuple[str, int]:
    """Return host and port of `HOST:PORT` or `PORT`, whose host is 127.0.0.1; raises DeclarationError.

    remote: whether other machines may connect.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise DeclarationError(f"address {text!r}: not an address. Write HOST:PORT, such as 127.0.0.1:9999.")
    if not remote and not _is_loopback_host(host):
        raise DeclarationError(
            f"host {host}: other machines reach it, and whoever connects can write. "
            "Listen on 127.0.0.1, or add --remote."
        )
    return host, int(port)


def _is_loopback_host(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise DeclarationError(f"host {host}: unknown ({error.strerror}). Correct the address.") from error
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


@contextmanager
def storing(folder: Path) -> Generator[None]:
    """Raise StorageError where the disk does not take what the block writes."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise StorageError(f"{folder}: it is a file, or is below one. Give a folder, which may be new.") from error
    except OSError as error:
        raise StorageError(
            f"{folder}: no line can be stored ({error.strerror}). Free space or correct its rights, and listen again: "
            "what was acknowledged is stored."
        ) from error


def serve(address: str, folder: Path, ready: Callable[[str], None], *, remote: bool) -> None:
    """Take lines into a folder until this process is asked to end (SIGINT, SIGTERM)."""
    host, port = address_of(address, remote=remote)
    with storing(folder):
        spool = Spool(folder)

    async def run() -> None:
        listener = Listener(spool)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, listener.stop)
        await listener.serve(host, port, ready)

    try:
        asyncio.run(run())
    except OSError as error:
        raise DeclarationError(
            f"address {address}: it cannot be listened on ({error.strerror}). Choose another address."
        ) from error
    finally:
        with storing(folder):
            spool.close()
