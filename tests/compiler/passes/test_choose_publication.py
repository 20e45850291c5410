"""The answer is stored in the state's table if it is a function of one row of one state, else in its own."""

from __future__ import annotations

import pytest

from deltafold.algebra.plan import Column, Item, Plan, StateRead
from deltafold.algebra.program import InPlace, OwnTable
from deltafold.compiler.passes.choose_publication import choose_publication
from deltafold.compiler.passes.split_states import split_states
from tests.compiler.plans import K, Q, T, V, call, draft, grouped, opaque, project, renamed, where

SUM = call("s", "sum", V, type_="double")
S = SUM.column
TWICE = Item(Column("twice", "double"), opaque("s * 2", "double"))
GROUPS = grouped(T, (K,), SUM)


def published(plan: Plan, *outputs: tuple[Column, str], publish: str = "auto") -> InPlace | OwnTable:
    found = choose_publication(split_states(draft(plan, *outputs, publish=publish))).publication
    assert found is not None
    return found


def test_group_by_is_published_in_place() -> None:
    """The common and cheapest form: one table, one MERGE."""
    found = published(GROUPS, (K, "Key"), (S, "total"))
    assert isinstance(found, InPlace) and found.state == "state_1"
    assert [(i.column.name, i.scalar.text) for i in found.items] == [("Key", "k"), ("total", "s")]


def test_row_local_expressions_are_in_place_too() -> None:
    """avg, ratios and casts are columns of the state, under the user's names and in the user's order."""
    found = published(project(GROUPS, TWICE, renamed(K, "g")), (Column("g", "int"), "g"), (TWICE.column, "2 x"))
    assert isinstance(found, InPlace)
    assert [(i.column.name, i.scalar.text) for i in found.items] == [("g", "k"), ("2 x", "s * 2")]


@pytest.mark.parametrize(
    ("plan", "output", "because"),
    [
        (where(GROUPS, "s > 1"), S, "hides groups"),
        (project(where(GROUPS, "s > 1"), S), S, "hides groups"),
        (project(project(GROUPS, TWICE), TWICE.column), TWICE.column, "several steps"),
        (project(GROUPS, Item(TWICE.column, opaque("s * 2", "double", None))), TWICE.column, "only known as text"),
        (T, V, "not a function of one row"),
        (StateRead("elsewhere", (K,)), K, "not a function of one row"),
    ],
    ids=["having", "having below a projection", "two projections", "no handle", "no state", "another state"],
)
def test_other_answers_have_a_table_of_their_own(plan: Plan, output: Column, because: str) -> None:
    """In place would show groups that the answer hides, or lack rows."""
    found = published(plan, (output, "x"))
    assert isinstance(found, OwnTable) and because in found.because


def test_pipeline_can_ask_for_a_table() -> None:
    """`publish: table` overrides the cheaper publication."""
    assert isinstance(published(GROUPS, (S, "s"), publish="table"), OwnTable)


def test_only_the_last_state_holds_the_answer() -> None:
    """The view's commit is the commit of the epoch, so it must be the last."""
    nested = split_states(draft(grouped(project(grouped(T, (K, Q), SUM), K, S), (K,), call("m", "max", S)), K))
    inner = StateRead("state_1", nested.states[0].columns)
    assert isinstance(choose_publication(nested.with_plan(inner)).publication, OwnTable)
