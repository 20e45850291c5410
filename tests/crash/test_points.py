"""The points to be killed at come from the code, and none is missing."""

from __future__ import annotations

from pathlib import Path

from incremental.lake.physical_layout import Storage
from incremental.lake.table import Table
from incremental.landing.manifest import Manifest
from incremental.refresh.dependents import Readers
from incremental.refresh.journal import Journal
from tests.crash.points import EXEMPT, LIBRARY, ROOMS, watched, writers
from tests.crash.sample import BY_SIGNAL, IN_PROCESS
from tests.crash.stages import STAGES
from tests.crash.worlds import KINDS

# These make what can be made again, and write nothing of a warehouse.
SPARK = ("cache", "class_data_sharing", "doctor", "shared_session", "jars", "java", "session", "trust_store")
SET_UP = {*(f"spark.{name}" for name in SPARK), "operations.metrics"}
OF_A_LANDING = {"Table.replace_where", "Manifest.remember"}  # tests/landing stops at each of its points
OF_UPKEEP = {"Journal.forget", *(name for name in writers("lake.physical_layout"))}  # some of these are enough


def test_every_write_of_the_library_is_a_point() -> None:
    """Protects from a new write, in a room that is not watched, that no crash test ever stops at."""
    elsewhere: set[str] = set()
    for file in LIBRARY.rglob("*.py"):
        module = ".".join(file.relative_to(LIBRARY).with_suffix("").parts)
        if module not in SET_UP and module not in ROOMS:
            elsewhere |= {f"{module}:{name}" for name in writers(module)}
    assert not elsewhere


def test_the_writes_we_know_of_are_found() -> None:
    """Protects from a search that finds nothing, which would make every crash test pass."""
    found = {f"{module}:{name}" for module in ROOMS for name in writers(module)}
    known = {"lake.table:Table._write", "lake.table:Table.merge", "lake.table:Table.replace_where"}
    known |= {
        "refresh.journal:Journal._write",
        "refresh.journal:Journal.withdraw",
        "landing.manifest:Manifest.remember",
        "refresh.journal:Journal.forget",
        "refresh.dependents:Readers.add",
    }
    upkeep = ("sort", "compact", "remove_older", "clone", "remove", "appear")
    known |= {f"lake.physical_layout:Storage.{name}" for name in upkeep}
    assert known | EXEMPT <= found


def test_the_sample_stops_at_both_sides_of_every_write_of_a_refresh() -> None:
    """Protects from a new write that only --long stops at, and from a kind of view or a stage that none is."""
    found = {name for module in ROOMS for name in writers(module) if f"{module}:{name}" not in EXEMPT}
    crashes = [*IN_PROCESS, *BY_SIGNAL]
    moments = {stop[0] for _, _, stop in crashes if isinstance(stop, tuple)}
    assert moments >= {f"{side} {name}" for side in ("before", "after") for name in found - OF_A_LANDING - OF_UPKEEP}
    assert {kind for kind, _, _ in crashes} == set(KINDS)
    assert {stage for _, stage, _ in crashes} == set(STAGES)


def test_watching_wraps_every_write_and_puts_it_back(tmp_path: Path) -> None:
    """Protects from a write that is found but not wrapped, and from wrappers that outlive their test."""
    owners = {"Table": Table, "Journal": Journal, "Manifest": Manifest, "Storage": Storage, "Readers": Readers}
    names = {name for module in ROOMS for name in writers(module) if f"{module}:{name}" not in EXEMPT}
    methods = [(owners[name.split(".")[0]], name.split(".")[1]) for name in names]
    originals = [getattr(owner, name) for owner, name in methods]
    with watched():
        assert all(getattr(owner, name) is not kept for (owner, name), kept in zip(methods, originals, strict=True))
    assert [getattr(owner, name) for owner, name in methods] == originals
