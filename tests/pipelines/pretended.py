"""Test room: a stand-in for the API. In: what the pretended view shall do. Out: something that the commands can drive.

It lets the command line be tested for every kind of failure without Spark; test_running.py does it for real.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines import catalogue


@dataclass(frozen=True)
class Landing:
    source: str
    version: int = 1
    landed: tuple[str, ...] = ("2024-05-01", "2024-05-02")
    unchanged: tuple[str, ...] = ("2024-05-03",)
    removed: tuple[str, ...] = ()
    rows: int = 1200
    seconds: float = 1.25


@dataclass(frozen=True)
class Report:
    epoch: int = 3
    verdict: str = "applied"
    sentence: str = "Epoch 3: 1,200 rows changed 7 groups in 2.0 s."
    versions: dict[str, tuple[int | None, int]] = field(default_factory=lambda: {"sales": (None, 1), "shops": (0, 0)})
    change_rows: int = 1200
    groups: int = 7
    rows_written: int = 1
    jobs: int = 5
    commits: int = 2
    seconds: float = 2.0
    phases: dict[str, float] = field(default_factory=lambda: {"merge": 1.5})
    finished: str = "2024-05-03T06:00:00Z"

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Verification:
    ok: bool = True
    missing: int = 0
    extra: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    sample: tuple[str, ...] = ()
    sentence: str = "shop equals the batch query."


class Row(tuple[Any, ...]):
    def asDict(self, recursive: bool) -> dict[str, Any]:
        return dict(zip(("city", "revenue"), self, strict=True))


@dataclass
class World:
    """What the pretended view does, and what it was asked."""

    fails: Exception | None = None
    verification: Verification = Verification()
    reports: tuple[Report, ...] = (Report(),)
    rows: tuple[Row, ...] = (Row(("Oslo", 12.5)), Row((None, -3)))
    version: int = 1
    asked: list[object] = field(default_factory=list)

    def land(self, name: str, partitions: Sequence[str] | None) -> Landing:
        self.asked.append((name, partitions))
        return Landing(name)

    def refresh(self, progress: Callable[[str], None]) -> Report:
        if self.fails:
            raise self.fails
        progress("merging [bold]state[/bold]")
        self.asked.append("refresh")
        return Report()

    def answer(self) -> Any:
        limited = lambda count: SimpleNamespace(collect=lambda: list(self.rows[:count]))  # noqa: E731
        return SimpleNamespace(columns=["city", "revenue"], limit=limited)

    def opened(self, *_: Any) -> tuple[Any, Any]:
        warehouse = SimpleNamespace(land=self.land, version=lambda name: self.version if name == "sales" else 0)
        view = SimpleNamespace(
            refresh=self.refresh,
            rebuild=Report,
            explain=lambda: "r0 := sales",
            verify=lambda: self.verification,
            history=lambda: self.reports,
            answer=self.answer,
        )
        return warehouse, view


def pretend(monkeypatch: pytest.MonkeyPatch) -> World:
    """Puts a World where the catalogue would open a real pipeline."""
    world = World()
    monkeypatch.setattr(catalogue, "start", lambda pipeline: None)
    monkeypatch.setattr(catalogue, "open", world.opened)
    return world
