"""Write and read a host's file: the address of a warm Spark on the loopback, which only its owner may read.

The file is in a folder that only its owner may enter. Before a guest sends anything, the secret included, it checks
that the process is alive, is the one that wrote the file, and owns the port: after a crash of the host, another user's
process may own it.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path

from deltafold.spark.cache import SetupError
from deltafold.spark.host.process import listens, start_of
from deltafold.spark.host.wanted import find_hosts_folder
from deltafold.spark.local_files import replace_file

COMMAND = "python -m deltafold.spark.host"
LARGEST_HOST_FILE = 1 << 16  # bytes
OTHERS = 0o077


class NoHostError(SetupError):
    """The host of a file has ended, does not answer or takes no guest; the caller can start its own Spark instead."""


@dataclass(frozen=True)
class Host:
    """The address of a warm Spark: process id and start of its Java (`start_of`), loopback port, secret.

    keeper: the process that keeps it. most_guests: the processes that it takes at once. spark: master and heap, to be
    shown. idle_seconds: the time without guests after which it ends; 0 for never.
    """

    process: int
    started: str
    port: int
    secret: str = field(repr=False)
    _: KW_ONLY
    keeper: int = 0
    most_guests: int = 4
    spark: str = ""
    idle_seconds: float = 0.0

    @property
    def fault(self) -> str:
        """The reason why nothing may be sent to its port; empty if there is none."""
        if start_of(self.process) != self.started:
            return f"its process {self.process} is gone"
        return "" if listens(self.process, self.port) else f"its process {self.process} does not listen on its port"


def read_host(file: Path) -> Host:
    """Read a host's file; raises NoHostError if missing or damaged, SetupError if others could have written it."""
    try:
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _check_private(file.parent, os.fstat(folder))
            # does not follow a link, and does not wait for a pipe
            opened = os.open(file.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(opened, "rb") as content:
            _check_private(file, os.fstat(content.fileno()))
            record = json.loads(content.read(LARGEST_HOST_FILE))
        return Host(
            process=int(record["process"]),
            started=str(record["started"]),
            port=int(record["port"]),
            secret=str(record["secret"]),
            keeper=int(record["keeper"]),
            most_guests=int(record["most_guests"]),
            spark=str(record["spark"]),
            idle_seconds=float(record["idle_seconds"]),
        )
    except FileNotFoundError:
        raise refuse_host(file, "there is no such file") from None
    except OSError as error:
        raise SetupError(
            f"Spark host {file}: it cannot be opened ({error.strerror}). Remove it, link or file, and start a host "
            f"with {COMMAND} {file}."
        ) from None
    except (ValueError, KeyError, TypeError):  # truncated by a full disk, or of another release
        raise refuse_host(file, "it is not a host's file") from None


def write_host(file: Path, host: Host) -> None:
    """Write a host's file atomically; raises SetupError if others may enter its folder."""
    check_folder(file)
    replace_file(file, json.dumps(asdict(host)), 0o600)


def check_folder(file: Path) -> None:
    """Create the folder of a host's file; raises SetupError if others may enter it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(file.parent, file.parent.lstat())


def withdraw(file: Path, host: Host) -> None:
    """Remove a host's file, unless another host has written it since."""
    try:
        if read_host(file) == host:
            file.unlink(missing_ok=True)
    except SetupError:
        pass  # removed, or written by another host


def refuse_host(file: Path, reason: str) -> NoHostError:
    """Return the error of a host that does not serve; one for a pipeline's settings is started by its name."""
    start = "deltafold host start NAME" if file.parent == find_hosts_folder() else f"{COMMAND} {file}"
    return NoHostError(f"Spark host {file}: {reason}. Start it with {start}")


def _check_private(path: Path, status: os.stat_result) -> None:
    """Raise SetupError for a file or folder that another user owns or may access, and for a symbolic link."""
    is_folder = stat.S_ISDIR(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        reason = "it is a link"
    elif status.st_uid != os.geteuid():
        reason = "it belongs to another user"
    elif status.st_mode & OTHERS:
        reason = f"others may {'enter it' if is_folder else 'read or write it'}"
    else:
        return
    remedy = "Name a file in a folder of your own with mode 700" if is_folder else "Remove it"
    raise SetupError(f"Spark host {path}: {reason}. {remedy}, and start the host with {COMMAND} FILE.")
