"""Pass: choose the table in which the answer is published.

If the answer is a function of one row of one state, its columns are stored in the state table itself: one MERGE and one
commit write both, and readers get an ordinary table. Any other answer has a table of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from deltafold.algebra.errors import Refusal, RefusedError
from deltafold.algebra.plan import Column, Filter, Item, Opaque, Project, StateRead
from deltafold.algebra.program import InPlace, OwnTable, Publication, State
from deltafold.algebra.traversal import pass_columns
from deltafold.compiler.draft import Draft, Outputs
from deltafold.compiler.passes.refuse_unmaintainable import (
    EVEN_RECOMPUTED,
    answer_columns,
    refuse_incomparable,
    refuse_unstorable_answer,
)


def choose_publication(draft: Draft) -> Draft:
    """Return the query with its cheapest publication; raises RefusedError if no table can store the answer."""
    chosen = _choose(draft)
    match chosen:
        case OwnTable():
            check_answer_table(draft.outputs)
        case InPlace():
            pass  # refuse_unmaintainable checks the columns of states
        case _:
            assert_never(chosen)
    return replace(draft, publication=chosen)


def check_answer_table(outputs: Outputs) -> None:
    """Refuse an answer that a table of its own cannot store, or whose rows it cannot compare; raises RefusedError."""
    if reasons := refuse_answer_table(outputs):
        raise RefusedError(reasons)


def refuse_answer_table(outputs: Outputs) -> tuple[Refusal, ...]:
    """Return the reasons against a table of its own for an answer."""
    columns = answer_columns(outputs)
    return tuple(refuse_unstorable_answer(columns)) or tuple(
        refuse_incomparable(columns, "two rows of the view", EVEN_RECOMPUTED)
    )


def _last_state(draft: Draft) -> tuple[str, ...]:
    """Return the name of the stage that is written last, if it is a state."""
    return tuple(stage.name for stage in draft.stages[-1:] if isinstance(stage, State))


def _choose(draft: Draft) -> Publication:
    if draft.publish == "table":
        return OwnTable("the pipeline asks for a table of its own")
    projections: list[tuple[Item, ...]] = []
    node = draft.plan
    while isinstance(node, Project):
        projections.append(node.items)
        node = node.child
    if isinstance(node, Filter):
        return OwnTable("a condition on the answer hides groups that the state must keep")
    if not isinstance(node, StateRead) or node.state not in _last_state(draft):
        return OwnTable("the answer is not a function of one row of one state")
    if len(projections) > 1:
        return OwnTable("the answer is computed in several steps")
    columns = projections[0] if projections else pass_columns(node.columns)
    by_column = {item.column: item for item in columns}
    items = tuple(Item(Column(name, column.type), by_column[column].scalar) for column, name in draft.outputs)
    if any(isinstance(item.scalar, Opaque) and item.scalar.handle is None for item in items):
        return OwnTable("the answer is only known as text")
    return InPlace(node.state, items, "the answer is a function of one row of the state")
