"""Draw the seconds of refreshes and full recomputes as a PNG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence


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
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()
