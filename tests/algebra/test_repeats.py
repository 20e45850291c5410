"""Inputs that occur several times: the largest of those whose change takes more than reading changed rows."""

from __future__ import annotations

from deltafold.algebra.plan import Column, Join, Plan, Reference, Union
from deltafold.algebra.traversal import find_repeats
from tests.compiler.plans import D, K, Q, T, V, grouped, opaque, project, renamed, where

JOINED = Join(
    left=T, right=D, kind="inner", condition=opaque("k = k2"), keys=((Reference(K), Reference(D.columns[0]), False),)
)


def test_the_branches_of_a_union_share_their_input() -> None:
    """As the branches of expand_distinct do: the join, and not each of what it reads."""
    dear = where(JOINED, "v > 0")
    branches: list[Plan] = [project(dear, K, V), project(dear, K, renamed(Q, "v2"))]
    assert find_repeats([Union(tuple(branches))]) == {dear}


def test_the_inputs_of_several_states_are_compared() -> None:
    """A state below another reads the same rows."""
    states = [project(JOINED, K, Q), grouped(JOINED, (K,))]
    assert find_repeats(states) == {JOINED}


def test_what_only_reads_a_source_is_computed_each_time() -> None:
    """Holding its rows would take a job, and reading them again takes none."""
    plan = where(T, "v > 0")
    assert find_repeats([project(plan, K), project(plan, Q)]) == frozenset()


def test_other_names_are_other_rows() -> None:
    """The attributes of both would be the same."""
    other = project(JOINED, *(renamed(column, f"{column.name}_2") for column in JOINED.columns))
    named = Join(left=other, right=project(T, renamed(K, "k_3")), kind="inner", condition=opaque("k_2 = k_3"))
    assert find_repeats([JOINED, named]) == {JOINED}
    assert find_repeats([where(JOINED, "v > 0"), where(project(T, renamed(Column("k", "int"), "k_4")), "k_4")]) == set()
