"""What no pass may change: a pass that does is found, for each thing that it can break."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deltafold.algebra.constraints import PrimaryKeyFact
from deltafold.algebra.plan import Aggregate, Column, Filter, Item, Join, Project, Reference, SourceRead, StateRead
from deltafold.algebra.traversal import pass_columns
from deltafold.compiler.compile import run_passes
from deltafold.compiler.draft import Draft
from deltafold.compiler.invariants import BrokenPassError, check_pass, find_answer_keys, join_stages
from tests.compiler.plans import K2, NAME, D, K, Q, T, V, call, draft, grouped, opaque, where

GROUPED = grouped(T, (K,), call("s", "sum", V))
QUERY = draft(where(GROUPED, "s > 1"))
SPLIT = next(after for name, after in run_passes(QUERY) if name == "split_states")
STATE = SPLIT.states[0]


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (QUERY, replace(QUERY, outputs=QUERY.outputs[:1]), "the answer has the columns k int, not k int, s bigint"),
        (QUERY, QUERY.with_plan(Project(GROUPED, pass_columns((K,)))), "the plan lacks s of the answer"),
        (draft(T, K), draft(D, (K2, "k")), "it reads the sources d, not t"),
        (draft(SourceRead("t", (("K", K),))), draft(T, K), "it reads Q, V of t too"),
        (draft(grouped(T, (K,)), K), draft(Project(T, pass_columns((K,))), K), r"\(k\) no longer identifies a row"),
        (SPLIT, replace(SPLIT, stages=()), "the answer reads state_1 before it is written"),
        (
            SPLIT,
            SPLIT.with_plan(StateRead("state_1", STATE.columns, (Column("z", "int"), Column("s", "bigint")))),
            "the answer reads z of state_1, which lacks it",
        ),
        (
            SPLIT,
            replace(SPLIT, stages=(replace(STATE, input=Project(T, pass_columns((K,)))),)),
            "state_1 reads v, which its input lacks",
        ),
        (SPLIT, replace(SPLIT, stages=(replace(STATE, bucket_by=(Q,)),)), r"buckets by q, no prefix of its key \(k\)"),
    ],
)
def test_what_a_pass_broke_is_found(before: Draft, after: Draft, fault: str) -> None:
    with pytest.raises(BrokenPassError, match=rf"pass p: .*{fault}"):
        check_pass("p", before, after)


def test_the_passes_of_a_query_break_nothing_and_its_stages_can_be_joined_again() -> None:
    """Protects from checks that refuse what is right, and from a comparison of something else than the query."""
    for name, after in run_passes(QUERY, checked=True):
        assert find_answer_keys(after) == {frozenset({"k"})}, name
    assert join_stages(SPLIT) == Filter(Project(GROUPED, pass_columns(GROUPED.columns)), opaque("s > 1"))


def test_keys_are_those_that_identify_a_row() -> None:
    """A join keeps the keys of one side if it finds at most one row on the other, and loses them otherwise."""
    keyed = {"facts": (PrimaryKeyFact("d", ("k2",)),)}
    equal = ((Reference(K), Reference(K2), False),)
    groups = Aggregate(T, (K, Q), ())
    joined = Join(left=groups, right=D, kind="inner", condition=opaque("k = k2"), keys=equal)
    assert find_answer_keys(draft(joined, **keyed)) == {frozenset({"k", "q"})}
    assert find_answer_keys(draft(joined)) == frozenset()
    assert find_answer_keys(draft(replace(joined, kind="full"), **keyed)) == frozenset()
    assert find_answer_keys(draft(replace(joined, kind="semi"))) == {frozenset({"k", "q"})}
    assert find_answer_keys(draft(D, NAME, **keyed)) == frozenset()
    computed = Project(groups, (Item(Column("x", "int"), opaque("k + 1", "int")), *pass_columns((Q,))))
    assert find_answer_keys(draft(computed)) == frozenset()
