"""Run the product's operations in a soak. Each takes the sandbox, a view and its draw, and can be killed anywhere.

The draw determines further arguments; the result is a few words for the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from random import Random
from unittest import mock

from deltafold.api import Tuning
from deltafold.cli import opened as ranges
from deltafold.pipelines import catalogue
from tests.soak.soak_sandbox import BRANCH, BY_DELTA, MERGED, SoakSandbox
from tests.soak.writes import meanwhile

CHUNKS = (1500, 3000, 6000)  # bytes: a file of a few rows has about one thousand
MOST_BRANCHES = 2
Work = Callable[[SoakSandbox, str, Random], str]


def refresh(world: SoakSandbox, view: str, draw: Random) -> str:
    return world.view(view).refresh().sentence


def refresh_in_parts(world: SoakSandbox, view: str, draw: Random) -> str:
    return world.view(view).refresh(chunk=draw.choice(CHUNKS)).sentence


def refresh_to_earlier(world: SoakSandbox, view: str, draw: Random) -> str:
    """To a version of one table before its latest."""
    name = draw.choice([name for name in world.reads(view.partition(BRANCH)[0]) if name in world.tables] or [""])
    if not name:
        return refresh(world, view, draw)
    latest = world.storage(name).version() or 0
    return world.view(view).refresh({name: max(0, latest - draw.randint(1, 3))}).sentence


def refresh_while_others_write(world: SoakSandbox, view: str, draw: Random) -> str:
    """The versions are pinned when it begins; what comes later is for the next one."""
    spark, table, seed = world.spark.newSession(), draw.choice(world.tables), draw.random()
    writer = threading.Thread(target=meanwhile, args=(world, spark, table, Random(seed), draw.randint(1, 3)))
    writer.start()
    try:
        return refresh(world, view, draw)
    finally:
        writer.join()


def rebuild(world: SoakSandbox, view: str, draw: Random) -> str:
    return world.view(view).rebuild(chunk=draw.choice((None, *CHUNKS))).sentence


def rollback(world: SoakSandbox, view: str, draw: Random) -> str:
    """To one of the last epochs of any generation."""
    done = world.view(view).history()[-6:-1]
    if not done:
        return "nowhere to go"
    report = draw.choice(done)
    return world.view(view).rollback(report.epoch, report.generation).sentence


def branch(world: SoakSandbox, view: str, draw: Random) -> str:
    """A branch; where there are enough, one goes, if it has none itself."""
    origin, branches = view.partition(BRANCH)[0], [name for name in world.views if BRANCH in name]
    if len(branches) >= MOST_BRANCHES:
        gone = draw.choice(branches)
        world.view(gone).drop()
        return f"dropped {gone}"
    free = next(n for n in range(9) if f"{origin}{BRANCH}{n}" not in branches)
    return world.view(view).branch(f"{origin}{BRANCH}{free}").name


def maintain(world: SoakSandbox, view: str, draw: Random) -> str:
    return world.view(view).maintain(0).sentence


def land(world: SoakSandbox, view: str, draw: Random) -> str:
    done = world.warehouse("days").land("sales")
    return f"landed {done.landed}, removed {done.removed}, version {done.version}"


def land_one(world: SoakSandbox, view: str, draw: Random) -> str:
    """One partition by name."""
    warehouse = world.warehouse("days")
    known = warehouse.partitions("sales")
    return str(warehouse.land("sales", [draw.choice(known)]).landed) if known else "there are none"


def backfill(world: SoakSandbox, view: str, draw: Random) -> str:
    """A range of days, two with each commit."""
    pipeline = catalogue.load("days", world.folder / "pipelines")
    with mock.patch.object(ranges, "PARTITIONS_AT_ONCE", 2):
        done = ranges.land_range(pipeline, world.warehouse("days"), "2024-05-01", "2024-05-06", lambda _: None)
    return ", ".join(str(each.landed) for each in done)


WORK: dict[str, tuple[int, Work]] = {
    "refresh": (30, refresh),
    "refresh in parts": (8, refresh_in_parts),
    "refresh to earlier versions": (3, refresh_to_earlier),
    "refresh while others write": (5, refresh_while_others_write),
    "rebuild": (3, rebuild),
    "rollback": (4, rollback),
    "branch": (3, branch),
    "maintain": (6, maintain),
    "land": (10, land),
    "land one partition": (3, land_one),
    "backfill": (2, backfill),
}
"""How often each is done, and the deed."""
BACKWARDS = ("refresh to earlier versions", "rollback")
OF_FILES = ("land", "land one partition", "backfill")
WHOLE = ("land", "backfill")  # after which the table has what the files have
REFRESHES = tuple(name for name in WORK if name.startswith("re"))


def do(world: SoakSandbox, name: str, view: str, seed: str, merged: bool, patience: float | None = None) -> str:
    """One piece of work; patience: seconds to wait for a lock."""
    tuning = Random(seed).choice((MERGED, BY_DELTA)) if merged else Tuning()
    world.tuning = tuning if patience is None else replace(tuning, lock_seconds=patience)
    return WORK[name][1](world, view, Random(seed))
