"""Leases: one process of all machines at a time, and what a process may do that has lost its own."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from deltafold.algebra.errors import BusyError, StorageError
from deltafold.lake.remote import objects
from deltafold.lake.remote.lease import LEASE_VARIABLE, Lease, hold_lease, lease_seconds
from deltafold.lake.remote.remote_path import HELD, RemotePath
from deltafold.lake.remote.remote_records import RemoteRecords
from deltafold.spark.cache import SetupError


@pytest.fixture
def folder(mount: str) -> RemotePath:
    return RemotePath(mount) / "views" / "totals"


def test_one_works_at_a_time(folder: RemotePath) -> None:
    """Protects from two refreshes of a view on two machines."""
    with RemoteRecords(folder).lock("view totals", "refreshed", 1):
        RemoteRecords(folder).put("current.json", "{}")
        with pytest.raises(BusyError, match=r"view totals: it is being refreshed by process \d+ on .*after 60 seconds"):
            hold_lease(folder, "view totals", "refreshed", 0).__enter__()
    with RemoteRecords(folder).lock("view totals", "refreshed", 0):
        pass
    assert not HELD
    assert not objects.object_exists(f"{folder}/.lock")


def test_of_many_that_ask_at_once_one_gets_it(folder: RemotePath) -> None:
    """Protects from a lease that two processes have taken in the same moment; the others learn who has it."""
    leases = [Lease(folder, 60) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda lease: lease.take(), leases))
    assert answers.count(None) == 1
    assert {each[:7] for each in answers if each is not None} == {"process"}
    leases[answers.index(None)].release()


def test_it_is_renewed(folder: RemotePath) -> None:
    """Protects from a refresh that takes longer than a lease."""
    lease = Lease(folder, 3)
    assert lease.take() is None
    time.sleep(4.5)
    lease.check()
    assert Lease(folder, 3).take() is not None
    lease.release()
    assert len(objects.list_folder(str(folder.parent / ".totals.lease"))) <= 6


def test_who_was_paused_for_too_long_writes_nothing(folder: RemotePath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a process that wakes up and goes on as if nothing had happened."""
    monkeypatch.setenv(LEASE_VARIABLE, "3")
    monkeypatch.setattr(Lease, "_renew", lambda _: None)  # as of a process that sleeps
    with hold_lease(folder, "view totals", "refreshed", 0):
        RemoteRecords(folder).put("current.json", "mine")
        time.sleep(3.6)
        other = Lease(folder, 60)
        assert other.take() is None
        for act in (
            lambda: RemoteRecords(folder).put("current.json", "still mine"),
            lambda: RemoteRecords(folder).delete("current.json"),
            lambda: RemoteRecords(folder / "g1").remove(),
        ):
            with pytest.raises(BusyError, match=r"longer than its lease of 3 seconds.* Run it again; nothing is lost"):
                act()
        other.check()
    other.check()  # giving back what is lost does not take it from the other
    assert RemoteRecords(folder).get("current.json") == "mine"
    assert Lease(folder, 60).take() is not None


def test_a_number_that_was_deleted_is_not_taken_again(folder: RemotePath) -> None:
    """Protects from a process that looked, slept while others took and gave back many times, and then wrote."""
    sleeper, lease = Lease(folder, 60), Lease(folder, 60)
    assert lease.take() is None
    for _ in range(8):
        assert lease._append(lease._number + 1, 60)
    assert not sleeper._append(1, 60)
    lease.check()
    lease.release()


def test_an_outage_shorter_than_a_lease_is_survived(folder: RemotePath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from losing a long refresh to a store that does not answer once."""
    lease = Lease(folder, 3)
    assert lease.take() is None

    def be_out(*_: object, **__: object) -> bool:
        raise StorageError("the store is out")

    with monkeypatch.context() as outage:
        outage.setattr(objects, "put_if_absent", be_out)
        time.sleep(1.3)
    time.sleep(1.2)
    lease.check()
    lease.release()


@pytest.mark.parametrize("given", ["soon", "0", "-5", "100000", "nan"])
def test_a_lease_of_no_sensible_length_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a lease that ends before it is taken, or never."""
    monkeypatch.setenv(LEASE_VARIABLE, given)
    with pytest.raises(SetupError, match=f"{LEASE_VARIABLE}: '{given}' is not valid"):
        lease_seconds()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_spark_that_ended_is_told_once(folder: RemotePath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a traceback of the renewal's thread beside the sentence of the refresh."""

    def refuse(*_: object, **__: object) -> bool:
        raise ConnectionRefusedError(111, "Connection refused")

    lease = Lease(folder, 3)
    assert lease.take() is None
    monkeypatch.setattr(objects, "put_if_absent", refuse)
    time.sleep(1.3)
    with pytest.raises(BusyError, match="Run it again"):
        lease.check()
    lease.release()
