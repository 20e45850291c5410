"""Records at a URI, against a dictionary."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltafold.algebra.errors import BusyError, SourceError, StorageError
from deltafold.lake.remote import objects, remote_records
from deltafold.lake.remote.lease import check_store
from deltafold.lake.remote.remote_path import RemotePath
from deltafold.lake.remote.remote_records import RemoteRecords

NAMES = ("a.json", "b.json", "b.jsonx")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "keep", "delete", "erase"]), st.sampled_from(NAMES), st.text("xyü\n", min_size=1)
    ),
    max_size=8,
)


@settings(max_examples=max(8, settings().max_examples // 40))
@given(steps=STEPS)
def test_records_are_those_of_a_dictionary(mount: str, steps: list[tuple[str, str, str]]) -> None:
    """Protects from a record that shows an older content, or one that was removed, whatever was done to it before."""
    records, expected = RemoteRecords(RemotePath(f"{mount}/{uuid4().hex}")), dict[str, str]()
    for what, name, text in steps:
        content = f"{text}|"  # a text ends with a line of content, as JSON does
        if what in ("write", "keep"):
            records.put(name, content, keep=what == "keep")
            expected[name] = content
        else:
            expected.pop(name, None)
            records.delete(name) if what == "delete" else records.erase(name)
        assert {name: records.get(name) for name in records.names()} == expected
    assert records.names("b*n") == [name for name in ("b.json",) if name in expected]
    for name in set(NAMES) - set(expected):
        with pytest.raises(FileNotFoundError):
            records.get(name)


def test_of_two_writers_one_is_refused(mount: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a process that was paused between its look at a record and its write, and has lost its lock."""
    records = RemoteRecords(RemotePath(mount))
    records.put("epoch.json", "intent", keep=True)

    def go_on_elsewhere(_: RemotePath) -> None:
        monkeypatch.undo()
        records.put("epoch.json", "report of the other", keep=True)

    monkeypatch.setattr(remote_records, "check_leases", go_on_elsewhere)
    with pytest.raises(BusyError, match="another process has written it meanwhile"):
        records.put("epoch.json", "report of the paused one", keep=True)
    assert records.get("epoch.json") == "report of the other"


def test_old_contents_go(mount: str) -> None:
    """Protects from a folder that grows with every epoch."""
    records = RemoteRecords(RemotePath(mount))
    for number in range(5):
        records.put("current.json", str(number))
    assert len(objects.list_folder(mount)) == 2
    assert records.get("current.json") == "4"


def test_a_store_that_lets_both_write_is_refused(mount: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from trusting the scheme of an address."""
    check_store(RemotePath(mount))
    assert not objects.list_folder(mount)
    monkeypatch.setattr(objects, "put_if_absent", lambda *_, **__: True)
    monkeypatch.setattr("deltafold.lake.remote.lease.CHECKED", set[str]())
    with pytest.raises(Exception, match=r"both commit .*Set spark\.delta\.logStore\.viewfs\.impl"):
        check_store(RemotePath(mount))


def test_a_log_store_that_looks_first_is_refused(mount: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from Delta's own log stores on S3, which refuse the second of two writes in a row only."""
    assert objects.log_store_class(f"{mount}/x") == "HDFSLogStore"
    monkeypatch.setattr(objects, "log_store_class", lambda _: "S3SingleDriverLogStore")
    written = iter([True, False, True, False])
    monkeypatch.setattr(objects, "put_if_absent", lambda *_, **__: next(written))
    monkeypatch.setattr(objects, "delete", lambda _: None)
    monkeypatch.setattr("deltafold.lake.remote.lease.CHECKED", set[str]())
    check_store(RemotePath(mount))
    with pytest.raises(SourceError, match="two processes could both commit"):
        check_store(RemotePath("s3a://bucket/x"))


def test_a_root_that_cannot_be_made_gets_a_sentence(mount: str) -> None:
    """Protects from a FileNotFoundError of Python for a bucket, or a mount, that does not exist."""
    elsewhere = mount.replace("/wh", "/other")
    with pytest.raises(StorageError, match=f"{elsewhere}: it cannot be read or written: .*nothing is half written"):
        check_store(RemotePath(elsewhere))


@pytest.mark.usefixtures("spark")
def test_a_store_that_is_not_there_gets_a_sentence() -> None:
    """Protects from a page of Java where jars are missing."""
    with pytest.raises(StorageError, match=r"s3a://nowhere/x: it cannot .*spark\.deltafold\.stores: s3a; nothing is"):
        objects.list_folder("s3a://nowhere/x")
