"""Nothing outside a source's folder is landed, whatever somebody who may drop files there makes of their names."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.api import Files, Warehouse
from deltafold.lake.delta_table import DeltaTable
from deltafold.landing import input_folder
from deltafold.landing.containment import is_shared, open_file_within
from deltafold.landing.folder import Partition, file_digest, partitions_in
from deltafold.landing.input_folder import Staging
from tests.landing.test_dropped import drop, files

PRIVATE = "id,s\n42,SECRET\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A source's folder with a partition, beside what its owner may read and no dropper."""
    drop(tmp_path / "private" / "a.csv", PRIVATE)
    drop(tmp_path / "drop" / "day=1" / "a.csv", "id,s\n1,x\n")
    return tmp_path / "drop"


def link(path: Path, target: str | Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("day=1/x.csv", "../../private/a.csv"),
        ("day=1/x.csv", "{root}/../private/a.csv"),
        ("day=1/x.csv", "../_out/a.csv"),
        ("day=1/x.csv", "../_file"),
        ("day=1/x.csv", "/proc/self/environ"),
        ("day=1/x.csv", "../day=2/../../private/a.csv"),
        ("day=2", "../private"),
        ("day=2", "_out"),
        ("day=2", ".."),
    ],
)
def test_links_that_lead_outside_are_refused(root: Path, name: str, target: str) -> None:
    """Protects from landing whatever the owner can read, and from showing its rows where they do not fit."""
    (root / "day=2").mkdir() if name != "day=2" else None
    link(root / "_out", "../private")
    link(root / "_file", "_out/a.csv")
    link(root / name, target.format(root=root))
    with pytest.raises(SourceError, match=rf"^source s: {root}/{name} is a link that leads out of {root}, and is not"):
        partitions_in("s", files(root))
    with pytest.raises(SourceError, match="leads out of"):
        file_digest("s", root, root / name / "a.csv" if name == "day=2" else root / name)


def test_links_in_a_folder_without_partitions_are_refused(root: Path) -> None:
    link(root / "day=1" / "x.csv", "../../private/a.csv")
    with pytest.raises(SourceError, match=r"x\.csv is a link that leads out of"):
        partitions_in("s", files(root / "day=1", by=None))
    link(root / "day=1" / "y.csv", "../day=1/a.csv")
    (root / "day=1" / "x.csv").unlink()
    assert partitions_in("s", files(root / "day=1", by=None))


@pytest.mark.parametrize("target", ["nowhere", "x.csv", "y.csv"])
def test_links_that_lead_nowhere_are_refused(root: Path, target: str) -> None:
    """Protects from rows that somebody means to have dropped, and from a loop."""
    link(root / "day=1" / "x.csv", target)
    link(root / "day=1" / "_y.csv", "x.csv")
    if target == "y.csv":
        (root / "day=1" / "_y.csv").rename(root / "day=1" / "y.csv")
    with pytest.raises(SourceError, match="is a link that leads nowhere"):
        partitions_in("s", files(root))


def test_a_pipe_is_no_file(root: Path) -> None:
    """Protects from waiting for ever for somebody to write."""
    os.mkfifo(root / "day=1" / "x.csv")
    with pytest.raises(SourceError, match="is a pipe or a device, not a file"):
        partitions_in("s", files(root))
    with pytest.raises(SourceError, match="replaced by a link or a pipe"):
        file_digest("s", root, root / "day=1" / "x.csv")


def test_links_within_the_folder_are_followed(root: Path) -> None:
    """Protects from refusing `latest`, or a folder that is mounted elsewhere and linked to."""
    link(root / "day=1" / "b.csv", "../_real/b.csv")
    link(root / "day=2", "_real")
    link(root / "_out", "../private")  # no data: nobody reads it
    drop(root / "_real" / "b.csv")
    link(root.with_name("linked"), "drop")
    for place in (root, root.with_name("linked")):
        found = partitions_in("s", files(place))
        assert {key: len(partition.files) for key, partition in found.items()} == {"1": 2, "2": 1}
        assert file_digest("s", place, *found["2"].paths) == file_digest("s", place, place / "day=1" / "b.csv")


def test_a_link_to_the_folder_is_its_owners(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a folder that somebody else replaces as a whole."""
    above = root.with_name("linked")
    link(above, "drop")
    if os.geteuid() == 0:
        os.chown(above, 65534, 65534, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(SourceError, match="linked is a link made by another user"):
        partitions_in("s", files(above))
    with pytest.raises(SourceError, match="linked is a link made by another user"):
        partitions_in("s", files(above / "day=1", by=None))


def test_a_name_that_becomes_a_link_is_not_followed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a link, or a folder of links, put there between the look and the reading."""
    path = root / "day=1" / "a.csv"
    realpath, swapped = os.path.realpath, list[str]()

    def swap(place: Path) -> str:
        found = realpath(place)
        if place == path and not swapped:
            swapped.append("once")
            where = path if kind == "file" else path.parent
            where.rename(root / "_old")
            where.symlink_to(root.parent / "private" / ("a.csv" if kind == "file" else ""))
        return found

    for kind in ("file", "folder"):
        with monkeypatch.context() as racing, pytest.raises(SourceError, match="was replaced by a link or a pipe"):
            racing.setattr(os.path, "realpath", swap)
            with open_file_within("s", root, path):
                pass
        swapped.clear()
        where = path if kind == "file" else path.parent
        where.unlink()
        (root / "_old").rename(where)
    with open_file_within("s", root, path) as file:
        assert file.read() == b"id,s\n1,x\n"


def test_who_may_write_there_decides(root: Path) -> None:
    """Protects from copying where nobody else can change a name, and from not doing so where somebody can."""
    day = root / "day=1"
    for folder in (root, day):
        folder.chmod(0o755)
    assert not is_shared(root, [day])
    for folder, mode in ((root, 0o775), (day, 0o777), (day, 0o1777)):
        folder.chmod(mode)
        assert is_shared(root, [day])
        folder.chmod(0o755)
    above = root.parent
    above.chmod(0o777)
    assert is_shared(root, [day]), "the folder itself can be replaced"
    above.chmod(0o1777)
    assert not is_shared(root, [day]), "not where only owners rename, as in /tmp"
    above.chmod(0o700)
    if os.geteuid() == 0:
        for place in (day, above):
            os.chown(place, 65534, 65534)
            assert is_shared(root, [day])
            os.chown(place, 0, 0)
    link(day / "b.csv", "a.csv")
    assert is_shared(root, [day])


@pytest.fixture(params=["linked", "copied"])
def taking(request: pytest.FixtureRequest, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Staging:
    """What takes the files of a shared folder, on a system that lets them be linked and on one that does not."""
    if request.param == "copied":

        def refused(*_: object, **__: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refused)
    root.chmod(0o777)
    return Staging("s", root, tmp_path / "wh" / "incoming")


def test_files_are_taken_out_of_reach(taking: Staging, root: Path) -> None:
    """Protects from Spark opening a name that leads elsewhere by then, and from files that a crash left."""
    [partition] = partitions_in("s", files(root)).values()
    drop(taking.folder / "day=1" / "left.csv")
    with taking.stage([partition]) as place:
        drop(root / "day=1" / "b.csv")
        (root / "day=1" / "a.csv").unlink()
        link(root / "day=1" / "a.csv", "../../private/a.csv")
        assert [(path.name, path.read_text()) for path in place.rglob("*.csv")] == [("a.csv", "id,s\n1,x\n")]
        assert {stat.S_IMODE(path.stat().st_mode) for path in (place, place / "day=1")} == {0o700}
    assert not taking.folder.exists()


def test_what_became_a_link_is_not_taken(taking: Staging, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from taking what a link leads to, made after all looks and just before its file is taken."""
    [partition] = partitions_in("s", files(root)).values()
    within = input_folder.open_folder_of

    def swap(source: str, place: Path, path: Path) -> object:
        if not path.is_symlink():
            opened = within(source, place, path)
            path.unlink()
            link(path, "../../private/a.csv")
            return opened
        return within(source, place, path)

    monkeypatch.setattr(input_folder, "open_folder_of", swap)
    with pytest.raises(SourceError), taking.stage([partition]):
        pass
    assert not taking.folder.exists()


@pytest.fixture
def shared(spark: SparkSession, root: Path, tmp_path: Path) -> Iterator[Warehouse]:
    root.chmod(0o777)
    warehouse = Warehouse(spark, tmp_path / "wh")
    warehouse.source(
        "s", Files(str(root), "csv", "id int, s string, day int", partition_by="day", malformed="quarantine")
    )
    yield warehouse
    assert not list((tmp_path / "wh" / "landed" / "s").glob("incoming*"))


def test_a_landing_reads_what_was_checked(shared: Warehouse, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a link put in place of a file while Spark is about to read it; files keep their names to people."""
    path, replace_where = root / "day=1" / "a.csv", DeltaTable.replace_where

    def swapped(*args: object, **options: object) -> int:
        if not path.is_symlink():
            path.rename(root / "_a.csv")
            link(path, root.parent / "private" / "a.csv")
        return replace_where(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "replace_where", swapped)
    assert shared.land("s").rows == 1
    monkeypatch.undo()
    assert shared.tables()["s"].at(0).collect() == [(1, "x", 1)]
    with pytest.raises(SourceError, match=r"a\.csv is a link that leads out of"):
        shared.land("s")
    path.unlink()
    (root / "_a.csv").rename(path)

    bad = drop(root / "day=2 b" / "b [1].csv", "id,s\nx,y\n1,z\n")
    drop(root / "day=2" / "c.csv", "id,s\n2,y\nthree,y\n4,y\n")
    bad.unlink()
    bad.parent.rmdir()
    assert shared.land("s").rows == 2
    [row] = shared.quarantine("s").collect()
    assert (row.file, row.line, row.row) == (str(root / "day=2" / "c.csv"), 3, "three,y")
    failing = Warehouse(shared.spark, shared.root)
    failing.source("s", Files(str(root), "csv", "id int, s string, day int", partition_by="day"))
    with pytest.raises(SourceError, match=rf": {root}/day=2/c\.csv, line 3, does not fit .* row three,y: "):
        failing.land("s")
    assert Counter(path.name for path in root.rglob("*.csv")) == Counter(["a.csv", "c.csv"])


def test_nothing_else_of_a_partition_is_taken(root: Path, tmp_path: Path) -> None:
    """Protects from files that came after the look, which the manifest would not know of."""
    root.chmod(0o777)
    partition = Partition("1", root / "day=1", [["a.csv", 1, 1]])
    drop(root / "day=1" / "later.csv")
    with Staging("s", root, tmp_path / "incoming").stage([partition]) as place:
        assert [path.name for path in place.rglob("*.csv")] == ["a.csv"]
