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
    sources,
    walk,
)
from incremental.compiler.distinct import mergeable

RECOMPUTE = "set policy: auto to recompute it at each refresh"


def refusals(plan: Plan, invariant: frozenset[str]) -> tuple[Refusal, ...]:
    """Every reason against an incremental plan; invariant: the sources declared not to change."""
    return tuple(refusal for node in walk(plan) for refusal in of_node(node, invariant))


def of_node(node: Plan, invariant: frozenset[str]) -> Iterable[Refusal]:
    """The reasons against one node."""
    match node:
        case Source() | StateRead() | Values() | Project() | Filter() | Generate() | Expand() | Union():
            pass
        case Join():
            yield from of_join(node, invariant)
        case Aggregate(keys=keys, calls=calls):
            yield from incomparable(keys, "two groups")
            for call in calls:
                if not mergeable(call):
                    because = "two of its partial values cannot be merged into the value of the whole"
                    yield Refusal(call.text, because, f"use an aggregate that merges, or {RECOMPUTE}")
        case KeyLocal(kind="window"):
            yield Refusal(f"window {node.text}", "window functions are not maintained in this release", RECOMPUTE)
        case KeyLocal():
            yield Refusal(node.text, "which rows a limit keeps depends on all rows", RECOMPUTE)
        case Foreign():
            yield Refusal(node.text, node.because, f"{node.instead}, or {RECOMPUTE}")
        case _:
            assert_never(node)


def incomparable(columns: Iterable[Column], what: str) -> Iterable[Refusal]:
    """The reasons against columns whose values Delta's MERGE cannot compare."""
    for column in columns:
        if "MAP<" in column.type.upper() or column.type.lower() in ("variant", "void"):
            because = f"a MERGE cannot compare values of type {column.type}, so {what} cannot be told apart"
            yield Refusal(f"column {column.name}", because, "use map_entries or to_json of it")


def of_join(node: Join, invariant: frozenset[str]) -> Iterable[Refusal]:
    """A join is linear in a side when the other cannot change."""
    frozen = [all(name in invariant for name in sources(side)) for side in node.children]
    linear = {"inner": any(frozen), "left": frozen[1], "semi": frozen[1], "anti": frozen[1], "existence": frozen[1]}
    linear |= {"right": frozen[0], "full": all(frozen)}
    if not linear[node.kind]:
        changing = ", ".join(name for side in node.children for name in sources(side) if name not in invariant)
        because = f"more than one of its sides can change ({changing})"
        yield Refusal(join_text(node), because, f"declare a side that never changes `invariant`, or {RECOMPUTE}")


def join_text(node: Join) -> str:
    """A join as explain prints it."""
    condition = f" on {node.condition.text}" if node.condition else ""
    return f"{node.kind} join{condition}"
