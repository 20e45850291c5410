"""Write lines durably into files of a partition for each minute, such that a landing never reads half a file.

    FOLDER/minute=2024-05-01T10%3A07%3A00Z/.lines-….part      being written; landings ignore names that begin with a dot
    FOLDER/minute=2024-05-01T10%3A07%3A00Z/lines-….txt        complete: renamed when its minute is over or it is large

`append` returns after the lines, and the names above them, are on the disk. What a crash leaves hidden is completed by
the next start.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from deltafold.algebra.errors import BusyError
from deltafold.spark.local_files import flush_folder

COLUMN = "minute"
LARGEST_SPOOL_FILE = 64 << 20
HIDDEN_SUFFIX, SUFFIX = ".part", ".txt"
BLOCK_BYTES = 1 << 20


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
        left = memoryview(lines)
        try:
            while left:
                left = left[os.write(self.descriptor, left) :]
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
        self.folder, self._largest = folder, largest
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
        complete_file(part.path)

    def recover(self) -> int:
        """Complete the files that a crash left hidden; returns their number."""
        left = sorted(self.folder.glob(f"{COLUMN}=*/.*{HIDDEN_SUFFIX}"))
        for path in left:
            cut_incomplete_line(path)
            complete_file(path)
        return len(left)

    def close(self) -> None:
        """Complete the open file and let go of the folder."""
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


def complete_file(path: Path) -> None:
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
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        file.truncate(end)
        file.flush()
        os.fsync(file.fileno())
