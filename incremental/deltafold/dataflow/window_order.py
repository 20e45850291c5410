"""Find windows of which a change leaves the rows before the first changed one as they are (D-229).

A function that reads no row behind its own in the window's order (a running sum, `lag`, a rank, a mean over the last 30
rows) has the value that it had in each row that precedes all changed rows of its partition. So only the rest of a
partition, its *tail*, is compared; and if each frame reaches back a fixed number of rows, only the tail and that many
rows before it are computed. Rows are compared by the first column of the order alone, so that peers belong to the tail.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.algebra.plan import Column, GroupwiseOp
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J
from deltafold.spark.peers import unwrap, window_function

OF_FRAME = frozenset({"AggregateExpression", "Lag", "Lead", "NthValue", "RowNumber", "Rank", "DenseRank"})
"""Functions that read the rows of their frame alone: not the size of the partition, as `ntile` does."""

LONG_FRAME = 30  # rows


@dataclass(frozen=True)
class WindowOrder:
    """The first column of a window's order.

    rows: the most rows before its own that a function reads; None if it may read all of them.
    """

    column: Column
    descending: bool
    rows: int | None

    @property
    def has_long_frames(self) -> bool:
        """Whether its frames are computed slower than the rows are found that they do not need."""
        return self.rows is not None and self.rows >= LONG_FRAME


def find_order(node: GroupwiseOp) -> WindowOrder | None:
    """Return the order of a window whose functions read no row behind their own; None of any other operator."""
    window: J = node.handle[0] if len(node.handle) == 1 else None
    if window is None or catalyst.kind(window) != "Window" or not (orders := catalyst.sequence(window.orderSpec())):
        return None
    first = orders[0]
    if catalyst.kind(first.child()) != "AttributeReference":
        return None
    name = str(first.child().name())
    column = next((column for column in node.child.columns if column.name == name), None)
    frames = [_rows_before(*window_function(named)) for named in catalyst.sequence(window.windowExpressions())]
    if column is None or column in node.keys or any(rows is None for rows in frames):
        return None
    most = max(rows for rows in frames if rows is not None)
    descending = not catalyst.kind(first.direction()).startswith("Ascending")
    return WindowOrder(column, descending, None if most == float("inf") else int(most))


def _rows_before(function: J, frame: J) -> float | None:
    """Return how many rows before its own a function reads, which may be any number; None if it reads others too."""
    if catalyst.kind(function) not in OF_FRAME:
        return None
    by_rows = catalyst.kind(frame.frameType()).startswith("Row")
    lower, upper = (_distance(edge, by_rows=by_rows) for edge in (frame.lower(), frame.upper()))
    if upper is None or upper > 0:
        return None
    skips_nulls = catalyst.kind(function) in ("Lag", "Lead") and bool(unwrap(function).ignoreNulls())
    return float("inf") if lower is None or skips_nulls else max(0.0, -lower)


def _distance(edge: J, *, by_rows: bool) -> float | None:
    """Return the distance of a frame's edge from the row, negative if before it; None if it is not a number of rows."""
    match catalyst.kind(edge).rstrip("$"):
        case "CurrentRow":
            return 0.0
        case "UnboundedPreceding":
            return float("-inf")
        case "UnboundedFollowing":
            return float("inf")
        case _ if by_rows and edge.foldable() and (rows := edge.eval(None)) is not None:
            return float(rows)
        case _:
            return None
