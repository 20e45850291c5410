"""Compiler room: a translated query → a program. In: plan, outputs, options. Out: `Program`, or a refusal.

The passes, in order; each is one pure function in one file.
"""

from __future__ import annotations

from collections.abc import Sequence

from incremental.algebra.constraints import Constraint
from incremental.algebra.errors import QueryError, Refusal, RefusedError
from incremental.algebra.plan import Column, Plan
from incremental.algebra.program import RESERVED, OwnTable, Program
from incremental.compiler.distinct import expand_distinct
from incremental.compiler.factor import factor
from incremental.compiler.fuse import fused
from incremental.compiler.refuse import incomparable, refusals, unheld
from incremental.compiler.strategy import Publish, publication
from incremental.compiler.unique import needless, unique
from incremental.compiler.verdicts import notes, verdicts

Outputs = tuple[tuple[Column, str], ...]


def compiled(
    plan: Plan,
    outputs: Outputs,
    fingerprint: str,
    forbidden: Sequence[tuple[str, str, str]],
    invariant: frozenset[str],
    publish: Publish = "auto",
    constraints: tuple[Constraint, ...] = (),
) -> Program:
    """Compile a query; raises RefusedError with every reason when it cannot be maintained incrementally.

    forbidden: expressions without a fixed value as (text, because, instead); constraints: those of its sources.
    """
    reasons = tuple(Refusal(*found) for found in forbidden)
    plan = expand_distinct(plan)
    said = needless(plan, constraints)
    plan = fused(unique(plan, constraints))
    reasons += refusals(plan) + tuple(unheld(shown(outputs)))
    if reasons:
        raise RefusedError(tuple(dict.fromkeys(reasons)))
    states, answer = factor(plan)
    target = publication(states, answer, outputs, publish)
    if isinstance(target, OwnTable):
        check_rows(outputs)
    told = verdicts(plan, invariant, constraints)
    return Program(fingerprint, states, answer, outputs, target, told, notes(states) + said, invariant, constraints)


def check_rows(outputs: Outputs) -> None:
    """Refuse a view table that Delta does not store, or whose rows cannot be compared; raises RefusedError."""
    if reasons := incomparable_rows(outputs):
        raise RefusedError(reasons)


def incomparable_rows(outputs: Outputs) -> tuple[Refusal, ...]:
    """The reasons against a view table of its own."""
    found = tuple(unheld(shown(outputs)))
    return found or tuple(incomparable(shown(outputs), "two rows of the view"))


def shown(outputs: Outputs) -> tuple[Column, ...]:
    """The answer's columns under the user's names."""
    return tuple(Column(name, column.type) for column, name in outputs)


def check_outputs(outputs: Outputs) -> None:
    """Refuse answer columns that a table cannot have; raises QueryError."""
    seen: dict[str, str] = {}
    for _, name in outputs:
        if name.lower() in seen:
            other = seen[name.lower()]
            names = repr(name) if other == name else f"{other!r} and {name!r}, which are one name"
            raise QueryError(f"the answer has two columns named {names}: give one of them another name with AS")
        if name.startswith(RESERVED):
            raise QueryError(
                f"the answer column {name!r} starts with {RESERVED!r}, which is reserved: rename it with AS"
            )
        seen[name.lower()] = name
    if not outputs:
        raise QueryError("the answer has no columns: select at least one")
