"""Loops on random graphs and histories, where each refresh is killed at one of its writes and run again."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.api import Report, View
from tests.crash.points import Killed, Run, watched
from tests.loops.cases import CASES, Case
from tests.loops.histories import history
from tests.night import night
from tests.reading import reading
from tests.sandbox import READS, DeltaSandbox, MemorySandbox, Sandbox

FIRST = 12  # writes of a first refresh, about


@dataclass
class Killer:
    """Kills each refresh at a random write, then refreshes as a new process does; stops: where it killed."""

    case: Case
    chance: random.Random
    stops: Counter[str] = field(default_factory=Counter[str])
    writes: int = FIRST

    def refresh(self, sandbox: Sandbox, view: View) -> tuple[View, Report]:
        """Refresh until one is not killed: the first two are, if they come to the write that was chosen."""
        for _ in range(2):
            with watched(self.chance.randrange(self.writes)) as run:
                try:
                    return view, self._finish(run, view)
                except Killed:
                    self.stops[run.passed[-1].moment] += 1
            view = self._reopen(sandbox)
        with watched() as run:
            return view, self._finish(run, view)

    def _finish(self, run: Run, view: View) -> Report:
        report = view.refresh()
        self.writes = len(run.passed) or self.writes
        return report

    def _reopen(self, sandbox: Sandbox) -> View:
        sandbox.warehouse = sandbox.opened(tuning=sandbox.warehouse.tuning)
        for name in ("edges", "starts"):
            sandbox.declare(name)
        return sandbox.view(self.case.query)


def killed(sandbox: Sandbox, name: str, seed: int, refreshes: int) -> Counter[str]:
    """Run one history with kills; return where."""
    killer = Killer(CASES[name], random.Random(seed))
    history(sandbox, CASES[name], seed, refreshes, killer.refresh)
    return killer.stops


def test_a_killed_loop_equals_its_oracle(sandbox: MemorySandbox) -> None:
    """Protects from rounds that are counted twice, or not at all, by the epoch that resumes."""
    assert killed(sandbox, "reachability", 2, 3)


@night
@pytest.mark.timeout(3600)  # ten minutes on an idle machine
@pytest.mark.parametrize("name", CASES)
def test_killed_loops_on_delta(spark: SparkSession, name: str) -> None:
    """In all some 1,000 refreshes, each killed twice at most."""
    stops = Counter[str]()
    for seed in range(12):
        with tempfile.TemporaryDirectory() as folder, reading([*READS][seed % 3]):
            stops += killed(DeltaSandbox(spark, Path(folder)), name, seed, 8)
    assert len(stops) > 8, f"few different writes: {stops}"
