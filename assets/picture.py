"""Draw the cost of a view's refreshes from its reports, as Markdown that contains the picture.

For a maintained view the cost follows the size of the change and not the size of the data.
"""

import base64
from collections.abc import Sequence

from incremental.algebra.results.report import Report
from pipelines import picture

SHOWN = 30
"""How many refreshes the picture has: every materialisation carries one, so it must stay small."""


def cost_picture(history: Sequence[Report], title: str) -> str:
    """Draw the last refreshes, as Markdown with a PNG inside; returns a sentence if there is nothing to draw.

    Args:
        history: a view's reports, oldest first.
        title: what stands above the bars.
    """
    shown = history[-SHOWN:]
    if not shown:
        return "No refresh has been finished yet."
    image = picture.cost(
        [f"epoch {report.epoch}" for report in shown],
        [report.change_rows for report in shown],
        [report.seconds for report in shown],
        {},
        title,
    )
    text = base64.b64encode(image).decode()
    return f"![{title}: seconds of the last {len(shown)} refreshes](data:image/png;base64,{text})"
