"""The split q = a ∘ h: a state for each group-by, inputs first, and the answer over the last ones."""

from __future__ import annotations

import pytest

from deltafold.algebra.monoids.family import infer_accumulator
from deltafold.algebra.plan import Column, Filter, Plan, Project, SourceRead, StateRead, Union
from deltafold.algebra.program import State
from deltafold.algebra.traversal import walk
from deltafold.compiler.passes.split_states import split_states
from tests.compiler.plans import K, Q, T, V, call, draft, grouped, project, renamed, where

SUM = call("s", "sum", V, type_="double")
S = SUM.column


def split(plan: Plan) -> tuple[tuple[State, ...], Plan]:
    found = split_states(draft(plan))
    return found.states, found.plan


def test_query_without_group_by_has_no_state() -> None:
    """A linear query is nothing but an answer."""
    plan = project(where(T, "v > 0"), K)
    assert split(plan) == ((), plan)


def test_the_input_is_h_and_the_rest_is_the_answer() -> None:
    """MRQL's factoring: HAVING and expressions over aggregates belong to the answer."""
    states, answer = split(where(grouped(where(T, "v > 0"), (K,), SUM), "s > 1"))
    (state,) = states
    assert (state.name, state.keys, state.bucket_by) == ("state_1", (K,), (K,))
    assert state.input == where(T, "v > 0")
    assert [(slot.call, slot.accumulator) for slot in state.slots] == [(SUM, infer_accumulator(SUM))]
    assert answer == where(StateRead("state_1", (K, S)), "s > 1")


def test_nested_group_bys_share_the_outer_key() -> None:
    """The inner state starts with the outer key and is stored in the same bucket."""
    inner = grouped(T, (Q, K), SUM)
    states, answer = split(grouped(project(inner, K, S), (K,), call("m", "max", S, type_="double")))
    assert [(s.name, s.keys, s.bucket_by) for s in states] == [("state_1", (K, Q), (K,)), ("state_2", (K,), (K,))]
    assert isinstance(states[1].input, Project)
    assert [n.state for n in walk(states[1].input) if isinstance(n, StateRead)] == ["state_1"]
    assert isinstance(answer, StateRead) and answer.state == "state_2"


def test_three_levels() -> None:
    """A key is passed down through every level."""
    first = grouped(T, (Q, K), SUM)
    second = grouped(first, (Q, K), call("n", "count", S))
    states, _ = split(grouped(second, (K,), call("m", "max", Column("n", "bigint"))))
    assert [s.keys for s in states] == [(K, Q), (K, Q), (K,)]
    assert {s.bucket_by for s in states} == {(K,)}


def test_total_over_groups() -> None:
    """Without an outer key the inner state uses its own."""
    states, _ = split(grouped(grouped(T, (Q, K), SUM), (), call("m", "max", S)))
    assert [(s.keys, s.bucket_by) for s in states] == [((Q, K), (Q, K)), ((), ())]


def test_union_of_group_bys_keeps_its_positions() -> None:
    """A union matches columns by position: a state that it reads must list its columns as the query does."""
    other = SourceRead("t", (("K", Column("k_2", "int")), ("Q", Column("q_2", "int"))))
    left = grouped(T, (K, Q), call("s", "sum", V))
    right = grouped(other, other.columns, call("s_2", "count"))
    states, answer = split(grouped(Union((left, right)), (Q,), call("m", "max", K), call("a", "sum", S)))
    union = states[-1].input
    assert isinstance(union, Union)
    assert [[c.name for c in child.columns] for child in union.children] == [["k", "q", "s"], ["k_2", "q_2", "s_2"]]
    assert isinstance(answer, StateRead)


def test_states_are_numbered_inputs_first() -> None:
    """A refresh merges the states in this order, so each must come after those that it reads."""
    left, right = grouped(T, (K,), SUM), grouped(T, (Q,), call("z", "max", V, type_="double"))
    union = Union((left, project(right, renamed(Q, "k_2"), right.columns[1])))
    states, answer = split(Filter(union, where(T, "k").condition))
    assert [s.name for s in states] == ["state_1", "state_2"]
    assert [n.state for n in walk(answer) if isinstance(n, StateRead)] == ["state_1", "state_2"]


@pytest.mark.parametrize(
    ("function", "name"), [("sum", "sum"), ("average", "avg"), ("max", "max"), ("minby", "min_by")]
)
def test_inferred_accumulator(function: str, name: str) -> None:
    """The accumulator of a call follows from its function and types."""
    assert infer_accumulator(call("x", function, V, K)).name == name


def test_notes_of_answers_that_spark_leaves_open() -> None:
    """max_by among equal orders: one note, although two columns ask for it."""
    plan = grouped(T, (K,), call("a", "minby", V, Q), call("b", "minby", V, Q))
    assert split_states(draft(plan)).notes == ("minby(v, q): the smallest value is taken among equal orders",)
