"""The demo's chart: seconds of each day, and the break-even that `make bench` saved."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contest import Contest, Lap
from deltafold.pipelines import picture
from deltafold.pipelines.picture import BreakEven

DAYS = {"landing": [0.5, 0.4], "refresh": [1.0, 2.0], "full recompute": [2.0, 3.0]}


def test_every_day_has_a_bar_for_each_measure() -> None:
    (panel,) = picture.chart(["a", "b"], [1_000, 2], DAYS, "days").axes
    heights = [[float(bar.get_height()) for bar in group] for group in panel.containers]  # pyright: ignore
    assert dict(zip(panel.get_legend_handles_labels()[1], heights, strict=True)) == DAYS
    assert [text.get_text() for text in panel.texts] == ["1,000", "2"]


def test_the_break_even_is_what_the_benchmark_saved(tmp_path: Path) -> None:
    """Medians of the counted laps by size, whatever else was measured."""
    file, contest = tmp_path / "group_by.json", Contest(None, tmp_path)
    assert picture.break_even(file) == []
    for setting, step, who, seconds in (
        ("10,000,000", "increment-5", "recompute", 1.5),
        ("10,000,000", "increment-2", "refresh", 0.5),
        ("1,000,000", "warm-up", "refresh", 9.0),
        ("1,000,000", "increment-2", "refresh", 0.4),
        ("1,000,000", "increment-3", "refresh", 0.6),
        ("1,000,000", "increment-4", "refresh", 0.5),
        ("1,000,000", "increment-4", "bare merge", 1.0),
        ("1,000,000", "increment-5", "recompute", 0.3),
        ("1,000", "increment-2", "refresh", 0.5),
    ):
        costs = {"jobs": 2, "commits": 1, "rows_read": 10, "rows_written": 5, "calls": 700}
        contest.add(Lap(setting=setting, step=step, who=who, seconds=seconds, **costs))
    contest.show("a query", [], file)
    sizes = picture.break_even(file)
    assert sizes == [BreakEven(1_000_000, 0.5, 0.3), BreakEven(10_000_000, 0.5, 1.5)]
    days, panel = picture.chart(["a", "b"], [1, 2], DAYS, "days", sizes).axes
    assert len(days.containers) == len(DAYS)
    assert [[float(y) for y in line.get_ydata()] for line in panel.lines] == [[0.5, 0.5], [0.3, 1.5]]  # pyright: ignore
    assert picture.cost(["a", "b"], [1, 2], DAYS, "days", sizes).startswith(b"\x89PNG")
