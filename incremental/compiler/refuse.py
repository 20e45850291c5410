"""Compiler pass: what cannot be maintained incrementally. In: a plan. Out: every refusal with its way out.

Runs before anything is split, so that a refused query touches no data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from incremental.algebra.errors import Refusal
from incremental.algebra.monoids.family import infer_accumulator
from incremental.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Generate,
    GroupwiseOp,
    Join,
    Plan,
    Project,
    SourceRead,
    StateRead,
    Union,
    Unsupported,
    Values,
)
from incremental.algebra.sqltext import first_unstored_type, is_unordered
from incremental.algebra.traversal import walk

UNDETERMINED = {
    "limit without order": (
        "which rows it keeps is undefined without an order",
        "add ORDER BY before LIMIT; ties are broken by all columns",
    ),
    "peers at a frame's edge": (
        "its RANGE frame ends among peers, whose order is undefined",
        "use ROWS instead of RANGE; ties are broken by all columns",
    ),
}
UNSUPPORTED = {
    "operator": ("Spark's operator {} has no incremental rule", "rewrite the query without it"),
    "subquery": ("Spark's operator {} contains a subquery", "compute the subquery in a query that is joined"),
    "subquery in a limit": (
        "the order or the columns of a LIMIT contain a subquery",
        "compute the subquery in a query below the LIMIT",
    ),
    "join type": ("Spark's {} join has no incremental rule", "write it as an inner or outer join"),
    "undeclared source": ("it reads data that is not a declared source", "declare it with Warehouse.source"),
    "recursion": ("a recursive query is a fixpoint, which has no incremental rule", "rewrite it without recursion"),
}
REMEDIES = {
    "interval": "use timestampdiff, datediff or extract to make a number of it, or cast it to STRING",
    "time": "cast it to STRING",
    "string": "add COLLATE UTF8_BINARY, or use collation_key of it",
    "void": "cast it to a type, or leave it out",
    "geometry": "use st_asbinary of it",
    "geography": "use st_asbinary of it",
}
RECOMPUTE = "set policy: auto to recompute it at each refresh"


def refusals(plan: Plan) -> tuple[Refusal, ...]:
    """Every reason against an incremental plan."""
    return tuple(refusal for node in walk(plan) for refusal in of_node(node))


def of_node(node: Plan) -> Iterable[Refusal]:
    """The reasons against one node."""
    match node:
        case SourceRead() | StateRead() | Values() | Project() | Filter() | Generate() | Expand() | Union() | Join():
            pass
        case Aggregate(keys=keys, calls=calls):
            yield from incomparable(keys, "two groups")
            kept = [(f"column {key.name}", key.type) for key in keys if key.type != "void"]
            kept += [(call.text, part.type) for call in calls for part in infer_accumulator(call).components]
            yield from (found for node, type_ in kept for found in unstorable(node, type_))
        case GroupwiseOp(keys=keys, text=text, undetermined=undetermined):
            yield from incomparable(keys, "two partitions")
            if undetermined is not None:
                yield Refusal(text, *UNDETERMINED[undetermined])
        case Unsupported():
            because, instead = explain_unsupported(node)
            yield Refusal(node.text, because, f"{instead}, or {RECOMPUTE}")
        case _:
            assert_never(node)


def explain_unsupported(node: Unsupported) -> tuple[str, str]:
    """Return the reason why a node has no incremental rule, and the way out."""
    because, instead = UNSUPPORTED[node.reason]
    return because.format(node.subject), instead


def unheld(columns: Iterable[Column]) -> Iterable[Refusal]:
    """The reasons against columns of an answer, recomputed or not."""
    thus = ", so no table can hold the answer, recomputed or not"
    for column in columns:
        yield from unstorable(f"column {column.name}", column.type, thus)


def unstorable(node: str, type_: str, thus: str = "") -> Iterable[Refusal]:
    """The reason against keeping values of a type in a table."""
    if (found := first_unstored_type(type_)) is None:
        return
    node = "a NULL without a type" if found == "void" else node
    instead = REMEDIES.get(found.split(" ")[0], "cast it to STRING")
    yield Refusal(node, f"Delta does not store values of type {found}{thus}", instead)


def incomparable(columns: Iterable[Column], what: str) -> Iterable[Refusal]:
    """The reasons against columns whose values Delta's MERGE cannot compare."""
    for column in columns:
        because = f"a MERGE cannot compare values of type {column.type}, so {what} cannot be told apart"
        if column.type == "void":
            yield Refusal("a NULL without a type", because, REMEDIES["void"])
        elif is_unordered(column.type):
            yield Refusal(f"column {column.name}", because, "use map_entries or to_json of it")


def join_text(node: Join) -> str:
    """A join as explain prints it."""
    condition = f" on {node.condition.text}" if node.condition else ""
    return f"{node.kind} join{condition}"
