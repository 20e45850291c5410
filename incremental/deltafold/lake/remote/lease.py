"""Let one process of all machines work in a folder at a URI: by a lease that is taken and renewed in the store itself.

A lease is a row of numbered objects beside the folder, each written once: whoever writes the next number has the lease
until the time in it. It is renewed in the background, and given back by a number whose time is over. A process that
died keeps it until then. One that was paused for longer finds that it has lost it before it writes a record or deletes
(remote_records.py); its Delta commits are refused by the mark of their epoch.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from uuid import uuid4

from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

from deltafold.algebra.errors import BusyError, SourceError, StateError, StorageError
from deltafold.lake.remote import objects
from deltafold.lake.remote.remote_path import HELD, RemotePath
from deltafold.spark.cache import SetupError
from deltafold.spark.jvm.object_stores import S3_SCHEMES, UNSAFE_ON_S3

LEASE_VARIABLE = "DELTAFOLD_LEASE_SECONDS"
DEFAULT_SECONDS, SHORTEST = 60.0, 3.0
KEPT_NUMBERS = 5  # older objects of a lease are deleted
ENDED_SPARK = (Py4JError, ConnectionError)  # of a Spark that is gone
TICK = 0.3  # seconds between two looks at a lease that another process has


class Lease:
    """The lease of one folder; seconds: how long one number is valid.

    The clocks of the machines may differ by a sixth of that: for so long before its end the holder takes it for lost,
    and for so long after it others take it for held.
    """

    def __init__(self, folder: RemotePath, seconds: float) -> None:
        self.folder, self.seconds, self.margin = folder, seconds, seconds / 6
        self._row = folder.parent / f".{folder.name}.lease"
        self._number, self._until, self._lost = 0, 0.0, False
        self._over = threading.Event()
        self._renewal = threading.Thread(target=self._renew, daemon=True)

    def take(self) -> str | None:
        """Take the lease; returns None, or who has it."""
        for _ in range(2):  # the second time it learns who took it in the same moment
            numbers = self._numbers()
            last = numbers[-1] if numbers else 0
            with suppress(FileNotFoundError):
                held = json.loads(objects.read_object(self._object(last))) if last else {"until": 0.0, "margin": 0.0}
                if held["until"] + held["margin"] > time.time():
                    return str(held["who"])
                if self._append(last + 1, self.seconds):
                    self._renewal.start()
                    return None
        return "another process"

    def check(self) -> None:
        """Raise BusyError if the lease is lost, or may be taken by another process soon."""
        if self._lost or time.time() > self._until - self.margin:
            raise BusyError(
                f"{self.folder}: this process was paused, or its store did not answer, for longer than its lease of "
                f"{self.seconds:g} seconds, so another one may work there. Run it again; nothing is lost."
            )

    def release(self) -> None:
        """Give the lease back, unless it is lost."""
        self._over.set()
        self._renewal.join()
        with suppress(StorageError, StateError, *ENDED_SPARK):  # it ends by itself
            if not self._lost:
                self._append(self._number + 1, -self.seconds)

    def _renew(self) -> None:
        while not self._over.wait(self.seconds / 3):
            try:
                if self._append(self._number + 1, self.seconds):
                    continue
            except (StorageError, StateError):  # the store may answer the next time, before the lease ends
                continue
            except ENDED_SPARK:  # the refresh learns of it from its own work
                pass
            self._lost = True
            return

    def _append(self, number: int, seconds: float) -> bool:
        """Write a number of the row; returns whether it is the last one, so that the lease is ours."""
        until = time.time() + seconds
        who = f"process {os.getpid()} on {socket.gethostname()}"
        entry = {"until": until, "margin": self.margin, "who": who, "id": uuid4().hex}  # no two are the same text
        if not objects.put_if_absent(self._object(number), json.dumps(entry)):
            return False
        numbers = self._numbers()
        if numbers[-1] != number:  # this process slept while others went on and deleted old numbers
            return False
        self._number, self._until = number, until
        for old in numbers[:-KEPT_NUMBERS]:
            objects.delete(self._object(old))
        return True

    def _numbers(self) -> list[int]:
        return sorted(int(each.name) for each in objects.list_folder(str(self._row), "[0-9]*"))

    def _object(self, number: int) -> str:
        return f"{self._row}/{number:012d}"


@contextmanager
def hold_lease(folder: RemotePath, what: str, work: str, timeout: float) -> Generator[None]:
    """Hold the lease of a folder within the block; what, work, timeout: as of `RecordStore.lock`. Raises BusyError."""
    lease, end = Lease(folder, lease_seconds()), time.monotonic() + timeout
    while (who := lease.take()) is not None:
        if time.monotonic() > end:
            raise BusyError(
                f"{what}: it is being {work} by {who}. Try again when it is done; the lease of a process that died "
                f"ends after {lease.seconds:g} seconds."
            )
        time.sleep(TICK)
    HELD[str(folder)] = lease.check
    try:
        yield
    finally:
        del HELD[str(folder)]
        lease.release()


def lease_seconds() -> float:
    """Return how long a lease is valid without being renewed; raises SetupError for an invalid variable."""
    given = os.environ.get(LEASE_VARIABLE, "")
    try:
        seconds = float(given or DEFAULT_SECONDS)
    except ValueError:
        seconds = 0.0
    if not SHORTEST <= seconds <= 3600:
        raise SetupError(f"{LEASE_VARIABLE}: {given!r} is not valid. Give seconds, from {SHORTEST:g} to 3600.")
    return seconds


CHECKED = set[str]()  # the roots that this process has tried


def check_store(root: RemotePath) -> None:
    """Write an object below a root twice, as two processes would; the second must be refused (D-142).

    Two writes in a row cannot show a log store that looks first and writes then, as Delta's own ones do on S3: these
    are known by their names.

    Raises StorageError for a store that does not answer, and SourceError for one that lets both write.
    """
    if root.address in CHECKED:
        return
    trial = f"{root.address}/.trial-{uuid4().hex}"
    scheme = root.address.partition(":")[0]
    try:
        unsafe = scheme in S3_SCHEMES and objects.log_store_class(trial) in UNSAFE_ON_S3
        written = objects.put_if_absent(trial, "first"), objects.put_if_absent(trial, "second")
        objects.delete(trial)
    except StorageError as error:
        raise StorageError(str(error).replace(trial, root.address)) from error
    if unsafe or written != (True, False):
        raise SourceError(
            f"warehouse {root}: two processes could both commit the same version there, so answers could be lost. "
            f"Set spark.delta.logStore.{scheme}.impl to a log store that refuses the second one, or start Spark with "
            f"spark.deltafold.stores: {scheme}, if that is s3a."
        )
    CHECKED.add(root.address)
