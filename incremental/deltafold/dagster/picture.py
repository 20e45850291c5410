"""Draw the cost of a view's refreshes, and the rounds of its loops, as Markdown with an embedded chart.

For a maintained view the cost follows the size of the change and not the size of the data.
"""

import base64
from collections.abc import Sequence

from deltafold.algebra.results.report import Report
from deltafold.pipelines import picture


def cost_picture(history: Sequence[Report], title: str) -> str:
    """Draw refreshes, as Markdown with a PNG inside; returns a sentence if there is nothing to draw.

    Args:
        history: a view's last reports, oldest first.
        title: of the chart.
    """
    if not history:
        return "No refresh has finished yet."
    image = picture.cost(
        [f"epoch {report.epoch}" for report in history],
        [report.change_rows for report in history],
        {"refresh": [report.seconds for report in history]},
        title,
    )
    return _embed(f"{title}: seconds of the last {len(history)} refreshes", image)


def rounds_picture(report: Report) -> str:
    """Draw the rows that each round of a refresh's loops moved, and their residuals, as Markdown with a PNG inside."""
    return _embed(f"{report.view}: rounds of epoch {report.epoch}", picture.rounds(report.rounds, report.residuals))


def _embed(text: str, image: bytes) -> str:
    return f"![{text}](data:image/png;base64,{base64.b64encode(image).decode()})"
