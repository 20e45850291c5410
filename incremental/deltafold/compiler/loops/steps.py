"""Find where the step of a loop reads its rows, and the reasons against maintaining a loop.

A step reads its loop *linearly* through operators to which each row contributes on its own:

| node | inputs through which the loop is linear |
| --- | --- |
| project, filter, generate, expand, union | all |
| inner join | both |
| left, single, semi, anti, existence join | the left |
| right join | the right |
| anything else | none |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import assert_never

from deltafold.algebra.errors import Refusal
from deltafold.algebra.plan import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Given,
    GroupwiseOp,
    Join,
    JoinKind,
    Loop,
    Plan,
    Project,
    SourceRead,
    StateRead,
    Union,
    Unsupported,
    Values,
)
from deltafold.algebra.traversal import replace_children, walk

RECOMPUTE = "set policy: auto to recompute it at each refresh"
LINEAR_SIDES: Mapping[JoinKind, tuple[bool, bool]] = {
    "inner": (True, True), "left": (True, False), "single": (True, False), "semi": (True, False),
    "anti": (True, False), "existence": (True, False), "right": (False, True), "full": (False, False),
}  # fmt: skip


def reads_loop(plan: Plan, name: str) -> bool:
    """Return whether a plan reads the rows of a loop."""
    return any(isinstance(node, Given) and node.name == name for node in walk(plan))


def linear_inputs(plan: Plan) -> tuple[bool, ...]:
    """Return for each input of a node whether the node is linear in it."""
    match plan:
        case Project() | Filter() | Generate() | Expand() | Union():
            return (True,) * len(plan.children)
        case Join(kind=kind):
            return LINEAR_SIDES[kind]
        case Aggregate() | GroupwiseOp() | Loop() | Unsupported():
            return (False,) * len(plan.children)
        case SourceRead() | StateRead() | Values() | Given():
            return ()
        case _:
            assert_never(plan)


def nonlinear_nodes(plan: Plan, name: str) -> Iterator[Plan]:
    """Yield the topmost nodes that read a loop otherwise than linearly."""
    for child, linear in zip(plan.children, linear_inputs(plan), strict=True):
        if not reads_loop(child, name):
            continue
        if linear:
            yield from nonlinear_nodes(child, name)
        else:
            yield plan


def rewrite_side_inputs(plan: Plan, name: str, rewrite: Callable[[Plan], Plan]) -> Plan:
    """Return a step with each maximal part that does not read the loop replaced by what `rewrite` makes of it."""
    if not reads_loop(plan, name):
        return rewrite(plan)
    return replace_children(plan, tuple(rewrite_side_inputs(child, name, rewrite) for child in plan.children))


def fixed_branches(plan: Plan, name: str) -> Iterator[Plan]:
    """Yield the branches of unions under linear operators that do not read a loop, beside others that do.

    They are the rows that a step gives of an empty loop: step(rows) = step(∅) + the rows derived from `rows`.
    """
    for child, linear in zip(plan.children, linear_inputs(plan), strict=True):
        if linear and reads_loop(child, name):
            yield from fixed_branches(child, name)
        elif isinstance(plan, Union):
            yield child


def refuse_reads(loop: Loop, text: Callable[[Plan], str]) -> Iterator[Refusal]:
    """Yield the reasons against the ways in which a step reads its loop; text: of a node as explain prints it."""
    name = loop.name
    for node in walk(loop.step):
        if isinstance(node, Loop) and node.name != name and reads_loop(node, name):
            yield Refusal(
                text(node),
                f"it is a loop within the step of {name} and reads its rows",
                f"use one loop, or {RECOMPUTE}",
            )
    if loop.traits.replayed:
        return
    if not reads_loop(loop.step, name):
        yield Refusal(text(loop), "its step does not read the rows of the loop", f"write it as a UNION, or {RECOMPUTE}")
    because = (
        f"rows that it gives may disappear when {name} gets more rows, so no least answer exists"
        if not loop.traits.by_one_level
        else f"only joins, filters and projections of the rows of {name} are maintained by level"
    )
    instead = "compute it above or below the loop, or use iterate"
    for node in nonlinear_nodes(loop.step, name):
        yield Refusal(text(node), because, f"{instead}, or {RECOMPUTE}")
    if loop.traits.by_one_level:
        because = f"it is a branch of the recursive part that gives its rows in every round of {name}"
        for branch in fixed_branches(loop.step, name):
            yield Refusal(text(branch), because, f"move it before the recursive part, or {RECOMPUTE}")
