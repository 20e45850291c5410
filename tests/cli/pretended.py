"""Replace the API by a fake whose results and errors a test sets, for the commands to call.

So the command line is tested for every kind of failure without Spark; test_running.py uses the real API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from deltafold.algebra.results.address import Address
from deltafold.algebra.results.report import Description, Landing, Report, StateDescription, Verification
from deltafold.algebra.results.upkeep import Lag, Size, Status, TableUpkeep, Upkeep
from deltafold.pipelines import catalogue

REPORT = Report(
    view="shop",
    epoch=3,
    generation=1,
    verdict="applied",
    sentence="Epoch 3: 1,200 rows changed 7 groups in 2.0 s.",
    versions={"sales": (None, 1), "shops": (0, 0)},
    change_rows=1200,
    groups=7,
    rows_written=1,
    jobs=5,
    commits=2,
    seconds=2.0,
    phases={"merge": 1.5},
    finished="2024-05-03T06:00:00Z",
)
UPKEEP = Upkeep(
    view="shop",
    sentence="shop: state_1 compacted.",
    retention_hours=168,
    tables={
        "state_1": TableUpkeep(work="sorted", partitions=2, files=(9, 2), removed=3, freed=4200),
        "landed/sales": TableUpkeep(work="as it was", partitions=0, files=(1, 1), removed=0, freed=0),
    },
    generations=(),
    entries=0,
    keeps=("files of the last 168 hours",),
    seconds=1.5,
    finished="2024-05-03T06:00:00Z",
)
DESCRIPTION = Description(
    name="shop",
    fingerprint="f",
    mode="incremental",
    states=(StateDescription("by_city", ("city",), ("rows", "revenue")),),
    columns=(("city", "string"), ("revenue", "double")),
    explain="r0 := sales",
    sources=("sales",),
)
ADDRESS = Address(
    view="shop",
    path="/lake/shop/g1/view",
    table="g1/view",
    version=3,
    generation=1,
    epoch=3,
    columns=(),
    finished="2024-05-03T06:00:00Z",
)
EQUAL = Verification(
    view="shop",
    ok=True,
    missing=0,
    extra=0,
    rows=7,
    versions={"sales": 1},
    sample=(),
    sentence="shop equals the batch query.",
)
DIFFERENT = Verification(
    view="shop",
    ok=False,
    missing=1,
    extra=2,
    rows=7,
    versions={"sales": 1},
    sample=("- (a\x1b[31m, 1)",),
    sentence="shop differs.",
)


class Row(tuple[Any, ...]):
    def asDict(self, recursive: bool) -> dict[str, Any]:
        return dict(zip(("city", "revenue"), self, strict=True))


@dataclass
class PretendedView:
    """What the pretended view does, and what it was asked."""

    fails: Exception | None = None
    verification: Verification = EQUAL
    reports: tuple[Report, ...] = (REPORT,)
    rows: tuple[Row, ...] = (Row(("Oslo", 12.5)), Row((None, -3)))
    version: int = 1
    unfinished: int | None = None
    held: dict[str, int] = field(default_factory=lambda: {"2024-05-01": 3, "2024-05-02": 4, "2024-05-04": 5})
    asked: list[object] = field(default_factory=list)

    def land(self, name: str, partitions: Sequence[str] | None) -> Landing:
        self.asked.append((name, partitions))
        return Landing(
            source=name,
            version=1,
            landed=("2024-05-01", "2024-05-02"),
            unchanged=("2024-05-03",),
            removed=(),
            rows=1200,
            seconds=1.25,
        )

    def replay(self, name: str, allow_loss: bool = False) -> Landing:
        self.asked.append(("replay", name, allow_loss) if allow_loss else ("replay", name))
        landed = ("2024-05-01", "2024-05-02") if self.held else ()
        return Landing(
            source=name,
            version=1,
            landed=landed,
            unchanged=(),
            removed=(),
            rows=600 * len(landed),
            seconds=1.25,
            quarantined=self.held,
        )

    def refresh(self, progress: Callable[[str], None], chunk: int | None) -> Report:
        if self.fails:
            raise self.fails
        progress("merging [bold]state[/bold]")
        self.asked.append("refresh" if chunk is None else f"refresh by {chunk}")
        return REPORT

    def answer(self) -> Any:
        limited = lambda count: SimpleNamespace(collect=lambda: list(self.rows[:count]))  # noqa: E731
        return SimpleNamespace(columns=["city", "revenue"], limit=limited)

    def status(self) -> Status:
        if not self.reports:
            return Status(view="shop")
        lag = {"sales": Lag(self.version - 1, (self.version - 1) * 10), "shops": Lag(0, 0)}
        sizes = {"state_1": Size(4, 2_500_000, 1), "view": Size(1, 900)}
        return Status(
            view="shop",
            epoch=REPORT.epoch,
            generation=REPORT.generation,
            verdict=REPORT.verdict,
            finished=REPORT.finished,
            age=7300.0,
            lag=lag,
            tables=sizes,
            unfinished=self.unfinished,
            quarantined={"sales": sum(self.held.values())},
        )

    def maintain(self, hours: float, progress: Callable[[str], None]) -> Upkeep:
        self.asked.append(("maintain", hours))
        progress("state_1")
        return UPKEEP

    def rollback(self, epoch: int, generation: int | None, progress: Callable[[str], None]) -> Report:
        self.asked.append(("rollback", epoch, generation))
        return REPORT

    def rebucket(self, buckets: int, progress: Callable[[str], None]) -> Report:
        self.asked.append(("rebucket", buckets))
        return REPORT

    def opened(self, *_: Any) -> tuple[Any, Any]:
        partitions = [f"2024-{month:02}-{day:02}" for month in (5, 6) for day in range(1, 29)]
        warehouse = SimpleNamespace(
            land=self.land, replay=self.replay, partitions=lambda name: partitions, quarantined=lambda: {"sales": 12}
        )
        view = SimpleNamespace(
            refresh=self.refresh,
            rebuild=self.refresh,
            explain=lambda: "r0 := sales",
            verify=lambda share: self.asked.append(f"verify {share}") or self.verification,
            history=lambda: self.reports,
            description=lambda: DESCRIPTION,
            address=ADDRESS,
            answer=self.answer,
            count=lambda: len(self.rows),
            status=self.status,
            maintain=self.maintain,
            rollback=self.rollback,
            rebucket=self.rebucket,
        )
        return warehouse, view


def pretend(monkeypatch: pytest.MonkeyPatch) -> PretendedView:
    """Puts a PretendedView where the catalogue would open a real pipeline."""
    world = PretendedView()
    monkeypatch.setattr(catalogue, "start_spark", lambda pipeline, brief=False: None)
    monkeypatch.setattr(catalogue, "open", world.opened)
    return world
