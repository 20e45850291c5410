"""The points to be killed at come from the code, and none is missing."""

from __future__ import annotations

from pathlib import Path

from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.durable import LocalRecords
from deltafold.lake.log.direct_commit import DirectCommit
from deltafold.lake.log.direct_merge import DirectMerge
from deltafold.lake.sql_view import SqlView
from deltafold.landing.input_folder import Staging
from deltafold.landing.landing import Manifest
from deltafold.landing.streams.arrivals import Intake
from deltafold.landing.streams.position import Reading
from deltafold.store.answer_pointer import PointerFile
from deltafold.store.dependents import Readers
from deltafold.store.journal import Journal
from tests.crash.crash_sandbox import KINDS
from tests.crash.points import EXEMPT, LIBRARY, ROOMS, watched, writers
from tests.crash.sample import BY_SIGNAL, IN_MEMORY, ON_DELTA
from tests.crash.stages import STAGES
from tests.lake.memory.log import MemoryLog

# These make what can be made again, and write nothing of a warehouse.
SPARK = (
    "cache",
    "doctor",
    "host.address",
    "host.control",
    "host.guests",
    "jvm.jars",
    "jvm.java",
    "jvm.object_stores",
    "local_files",
    "session",
    "session_settings",
)
SET_UP = {*(f"spark.{name}" for name in SPARK), "display", "operations.metrics"}
# test_remote_warehouse.py stops at each of their acts
AT_A_URI = {f"lake.remote.{name}" for name in ("lease", "objects", "remote_records")}
OF_A_LANDING = {"DeltaTable.replace_where", "Manifest.remember"}  # tests/landing stops at each of its points
OF_A_LANDING |= writers("landing.streams.arrivals") | writers("landing.streams.position")  # test_streams.py
OF_A_LANDING |= writers("landing.input_folder")  # the next landing clears what a crash leaves (test_containment.py)
UPKEEP = ("sort", "compact", "remove_older", "clone", "restore")
OF_UPKEEP = {
    "Journal.prune",
    "LocalRecords.remove",
    "LocalRecords.move_to",
    *(f"DeltaTable.{name}" for name in UPKEEP),
}  # some of these are enough


def test_every_write_of_the_library_is_a_point() -> None:
    """Protects from a new write, in a package that is not watched, that no crash test ever stops at."""
    elsewhere: set[str] = set()
    for file in LIBRARY.rglob("*.py"):
        module = ".".join(file.relative_to(LIBRARY).with_suffix("").parts)
        if not module.startswith(("cli.", "dagster.", "demo.", "pipelines.")) and (
            module not in {*SET_UP, *AT_A_URI, *ROOMS}
        ):
            elsewhere |= {f"{module}:{name}" for name in writers(module)}
    assert not elsewhere


def test_the_writes_we_know_of_are_found() -> None:
    """Protects from a search that finds nothing, which would make every crash test pass."""
    found = {f"{module}:{name}" for module in ROOMS for name in writers(module)}
    known = {f"lake.delta_table:DeltaTable.{name}" for name in ("_write", "merge", "replace_where", *UPKEEP)}
    known |= {f"lake.log.direct_commit:DirectCommit.{name}" for name in ("write_files", "finish")}
    known |= {"lake.log.direct_merge:DirectMerge.write_vectors"}
    known |= {"lake.durable:LocalRecords.remove", "lake.durable:LocalRecords.move_to"}
    known |= {
        "store.journal:Journal._write",
        "store.journal:Journal.remove",
        "landing.landing:Manifest.remember",
        "store.journal:Journal.prune",
        "store.dependents:Readers.add",
        "store.answer_pointer:PointerFile.write",
        "lake.sql_view:SqlView.write",
        "lake.sql_view:SqlView.drop",
    }
    assert known | EXEMPT <= found


def test_the_sample_stops_at_every_write_of_a_refresh() -> None:
    """Protects from a new write that only --long stops at, and from a kind of view or a stage that none is."""
    found = {name for module in ROOMS for name in writers(module) if f"{module}:{name}" not in EXEMPT}
    crashes = [*IN_MEMORY, *ON_DELTA, *BY_SIGNAL]
    stopped = {stop[0].split()[1] for _, _, stop in crashes if isinstance(stop, tuple)}
    assert stopped >= found - OF_A_LANDING - OF_UPKEEP
    assert {kind for kind, _, _ in crashes} == set(KINDS)
    assert {stage for _, stage, _ in crashes} == set(STAGES)


def test_watching_wraps_every_write_and_puts_it_back(tmp_path: Path) -> None:
    """Protects from a write that is found but not wrapped, and from wrappers that outlive their test."""
    owned = (
        DeltaTable,
        DirectCommit,
        DirectMerge,
        MemoryLog,
        LocalRecords,
        Journal,
        Manifest,
        Readers,
        PointerFile,
        SqlView,
        Staging,
        Intake,
        Reading,
    )
    owners: dict[str, type] = {owner.__name__: owner for owner in owned}
    names = {name for module in ROOMS for name in writers(module) if f"{module}:{name}" not in EXEMPT}
    methods = [(owners[name.split(".")[0]], name.split(".")[1]) for name in names]
    originals = [getattr(owner, name) for owner, name in methods]
    with watched():
        assert all(getattr(owner, name) is not kept for (owner, name), kept in zip(methods, originals, strict=True))
    assert [getattr(owner, name) for owner, name in methods] == originals
