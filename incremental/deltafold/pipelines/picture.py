"""Draw the seconds of landings, refreshes and full recomputes, and the rounds of loops, as a PNG."""

from __future__ import annotations

import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Axes = Any  # matplotlib.axes.Axes, of whose methods many parameters have no types

PHASES = {"retract": "#c44e52", "insert": "#55a868", "levels": "#4c72b0", "steps": "#4c72b0"}
"""The colour of a round by what it does, as in Report.rounds."""
COLORS = {"landing": "#a0a0a0", "refresh": "#4c72b0", "full recompute": "#c44e52"}
BARS = 0.8  # of the distance of two groups of bars


@dataclass(frozen=True)
class BreakEven:
    """Median seconds of a refresh and of a full recompute of the same query, for one size of its table in rows."""

    rows: int
    refresh: float
    recompute: float


def break_even(file: Path) -> list[BreakEven]:
    """Read the medians that `make bench` saved, by size; empty if it has not saved any."""
    if not file.exists():
        return []
    seconds: dict[tuple[int, str], list[float]] = {}
    for lap in json.loads(file.read_text(encoding="utf-8"))["laps"]:
        if str(lap["step"]).startswith("increment"):
            seconds.setdefault((int(lap["setting"].replace(",", "")), lap["who"]), []).append(lap["seconds"])
    medians = {key: statistics.median(laps) for key, laps in seconds.items()}
    sizes = sorted({rows for rows, who in medians if who == "refresh" and (rows, "recompute") in medians})
    return [BreakEven(rows, medians[rows, "refresh"], medians[rows, "recompute"]) for rows in sizes]


def cost(
    labels: Sequence[str],
    rows: Sequence[int],
    seconds: Mapping[str, Sequence[float]],
    title: str,
    sizes: Sequence[BreakEven] = (),
) -> bytes:
    """Draw the cost of refreshes as a PNG.

    labels, rows: name and number of rows of each refresh, in order. seconds: of each refresh under "refresh", and those
    measured beside it under "landing" and "full recompute". sizes: draws a second panel, cost by the table's size.
    """
    return _png(chart(labels, rows, seconds, title, sizes))


def chart(
    labels: Sequence[str],
    rows: Sequence[int],
    seconds: Mapping[str, Sequence[float]],
    title: str,
    sizes: Sequence[BreakEven] = (),
) -> Figure:
    """Return the figure that `cost` draws."""
    # Not pyplot: it would look for a display, and keep every figure in memory.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14 if sizes else 9, 5), layout="constrained")
    panels: Any = figure.subplots(1, 2 if sizes else 1, squeeze=False, width_ratios=(3, 2) if sizes else None)
    _draw_refreshes(panels[0][0], labels, rows, seconds)
    panels[0][0].set_title(f"{title} (on the bars: rows)")
    if sizes:
        _draw_sizes(panels[0][1], sizes)
    for panel in panels[0]:
        panel.set_ylabel("seconds")
        panel.set_ylim(0, 1.25 * panel.get_ylim()[1])  # room for the legend
        panel.legend(frameon=False)
        panel.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_refreshes(
    panel: Axes, labels: Sequence[str], rows: Sequence[int], seconds: Mapping[str, Sequence[float]]
) -> None:
    width = BARS / len(seconds)
    for number, (name, measured) in enumerate(seconds.items()):
        middles = [group + (number - (len(seconds) - 1) / 2) * width for group in range(len(measured))]
        panel.bar(middles, measured, width, color=COLORS[name], label=name)
        if name == "refresh":
            for middle, height, count in zip(middles, measured, rows, strict=True):
                panel.annotate(f"{count:,}", (middle, height), ha="center", va="bottom", fontsize=7)
    panel.set_xticks(range(len(labels)), labels, rotation=45, ha="right", fontsize=8)


def _draw_sizes(panel: Axes, sizes: Sequence[BreakEven]) -> None:
    rows = [size.rows for size in sizes]
    panel.plot(rows, [size.refresh for size in sizes], color=COLORS["refresh"], marker="o", label="refresh")
    recomputes = [size.recompute for size in sizes]
    panel.plot(rows, recomputes, color=COLORS["full recompute"], marker="o", label="full recompute")
    panel.set_xscale("log")
    panel.set_xlabel("rows of the table")
    panel.set_title("A small change by the table's size (make bench)")


def rounds(loops: Mapping[str, Mapping[str, Sequence[int]]], residuals: Mapping[str, Sequence[float]]) -> bytes:
    """Draw the rows that each round of each loop moved, by what it did, with the residuals of steps, as a PNG.

    loops, residuals: as in Report; at least one loop.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.6 * len(loops)), layout="constrained")
    for number, (name, phases) in enumerate(loops.items(), 1):
        axes: Axes = figure.add_subplot(len(loops), 1, number)
        _bars(axes, phases)
        axes.set(title=name, xlabel="round", ylabel="rows")
        if residuals.get(name):
            line = axes.twinx()
            line.plot(range(1, len(residuals[name]) + 1), residuals[name], color="#dd8452", marker="o", markersize=3)
            line.set(yscale="log", ylabel="residual")
    return _png(figure)


def _bars(axes: Axes, phases: Mapping[str, Sequence[int]]) -> None:
    begun = 1
    for phase, rows in phases.items():
        axes.bar(range(begun, begun + len(rows)), rows, color=PHASES.get(phase), label=phase)
        begun += len(rows)
    axes.legend(frameon=False, fontsize=8)


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120)  # pyright: ignore[reportUnknownMemberType]
    return out.getvalue()
