"""Draw the seconds of refreshes and full recomputes, and the rounds of loops, as a PNG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PHASES = {"retract": "#c44e52", "insert": "#55a868", "levels": "#4c72b0", "steps": "#4c72b0"}
"""The colour of a round by what it does, as in Report.rounds."""


def cost(
    labels: Sequence[str], rows: Sequence[int], refreshes: Sequence[float], recomputes: Mapping[int, float], title: str
) -> bytes:
    """Draw refresh cost against recompute cost as a PNG.

    labels, rows, refreshes: name, added rows and seconds of each refresh, in order.
    recomputes: seconds of a full recompute, by the index of the refresh after which it was measured.
    """
    # Not pyplot: it would look for a display, and keep every figure in memory.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    seconds = figure.add_subplot()
    seconds.bar(range(len(refreshes)), refreshes, color="#4c72b0", label="refresh")
    if recomputes:
        places, measured = zip(*sorted(recomputes.items()), strict=True)
        seconds.plot(places, measured, color="#c44e52", marker="o", label="full recompute")
    for place, count in enumerate(rows):
        seconds.annotate(f"{count:,}", (place, refreshes[place]), ha="center", va="bottom", fontsize=7)
    seconds.set_xticks(range(len(labels)), labels, rotation=45, ha="right", fontsize=8)
    seconds.set_ylabel("seconds")
    seconds.set_title(f"{title} (on the bars: rows)")
    seconds.legend(frameon=False)
    seconds.spines[["top", "right"]].set_visible(False)
    return _png(figure)


def rounds(loops: Mapping[str, Mapping[str, Sequence[int]]], residuals: Mapping[str, Sequence[float]]) -> bytes:
    """Draw the rows that each round of each loop moved, by what it did, with the residuals of steps, as a PNG.

    loops, residuals: as in Report; at least one loop.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.6 * len(loops)), layout="constrained")
    for place, (name, phases) in enumerate(loops.items(), 1):
        axes = figure.add_subplot(len(loops), 1, place)
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
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()
