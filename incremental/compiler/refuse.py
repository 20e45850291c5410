"""Compiler pass: what cannot be maintained incrementally. In: a plan. Out: every refusal with its way out.

Runs before anything is split, so that a refused query touches no data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from incremental.algebra.errors import Refusal
from incremental.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Foreign,
    Generate,
    Join,
    KeyLocal,
    Plan,
    Project,
    Source,
    StateRead,
    Union,
    Values,
    walk,
)

DETERMINED = {
    "limit": "order it: ORDER BY before LIMIT, ties are settled by all columns",
    "window": "say ROWS instead of RANGE for its frame, which is settled by all columns",
}
RECOMPUTE = "set policy: auto to recompute it at each refresh"


def refusals(plan: Plan) -> tuple[Refusal, ...]:
    """Every reason against an incremental plan."""
    return tuple(refusal for node in walk(plan) for refusal in of_node(node))


def of_node(node: Plan) -> Iterable[Refusal]:
    """The reasons against one node."""
    match node:
        case Source() | StateRead() | Values() | Project() | Filter() | Generate() | Expand() | Union() | Join():
            pass
        case Aggregate(keys=keys):
            yield from unstorable(keys, "two groups")
        case KeyLocal(kind=kind, keys=keys, text=text, ambiguous=ambiguous):
            yield from incomparable(keys, "two partitions")
            if ambiguous is not None:
                yield Refusal(text, ambiguous, DETERMINED[kind])
        case Foreign():
            yield Refusal(node.text, node.because, f"{node.instead}, or {RECOMPUTE}")
        case _:
            assert_never(node)


def unstorable(columns: Iterable[Column], what: str) -> Iterable[Refusal]:
    """The reasons against columns of a table of ours by which rows are found again."""
    yield from incomparable(columns, what)
    for column in columns:
        if " COLLATE " in column.type.upper():
            because = f"Delta does not store values of type {column.type}"
            yield Refusal(f"column {column.name}", because, "use lower() or collation_key() of it")


def incomparable(columns: Iterable[Column], what: str) -> Iterable[Refusal]:
    """The reasons against columns whose values Delta's MERGE cannot compare."""
    for column in columns:
        because = f"a MERGE cannot compare values of type {column.type}, so {what} cannot be told apart"
        if column.type.lower() == "void":
            yield Refusal("a NULL without a type", because, "cast it to a type, or leave it out")
        elif "MAP<" in column.type.upper() or column.type.lower() == "variant":
            yield Refusal(f"column {column.name}", because, "use map_entries or to_json of it")


def join_text(node: Join) -> str:
    """A join as explain prints it."""
    condition = f" on {node.condition.text}" if node.condition else ""
    return f"{node.kind} join{condition}"
