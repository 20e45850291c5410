"""DISTINCT aggregates become group-bys one level down, if every aggregate beside them merges."""

from __future__ import annotations

from deltafold.algebra.plan import Aggregate, Column, Plan, Project, Reference, Sql, Union
from deltafold.compiler.passes.expand_distinct import expand_distinct
from tests.compiler.plans import K, Q, T, V, call, draft, grouped, where

COUNT_Q = call("n", "count", Q, distinct=True)


def expanded(plan: Plan) -> Plan:
    return expand_distinct(draft(plan)).plan


def test_plans_without_distinct_stay_as_they_are() -> None:
    """The pass must not touch what it has no rule for."""
    plan = where(grouped(T, (K,), call("s", "sum", V, type_="double")), "s")
    assert expanded(plan) == plan


def test_one_set_of_arguments_is_one_more_group_by() -> None:
    """count(distinct q) alone needs no union."""
    outer = expanded(grouped(T, (K,), COUNT_Q))
    assert isinstance(outer, Aggregate) and outer.keys == (K,)
    assert [(c.function, c.arguments, c.distinct) for c in outer.calls] == [("count", (Q,), False)]
    inner = outer.child
    assert isinstance(inner, Aggregate) and (inner.keys, inner.calls) == ((K, Q), ())
    assert isinstance(inner.child, Project) and inner.child.columns == (K, Q)


def test_distinct_group_key_is_taken_once() -> None:
    """count(distinct k) group by k must not produce two columns of one name."""
    outer = expanded(grouped(T, (K,), call("n", "count", K, distinct=True)))
    assert isinstance(outer, Aggregate) and isinstance(outer.child, Aggregate)
    assert outer.child.keys == (K,)


def test_two_sets_and_plain_aggregates_are_branches_of_a_union() -> None:
    """Each aggregate must see only its own branch's rows: NULL everywhere else."""
    plan = grouped(T, (K,), COUNT_Q, call("m", "max", V, type_="double"), call("d", "sum", V, distinct=True))
    outer = expanded(plan)
    assert isinstance(outer, Aggregate) and outer.columns == plan.columns
    union = outer.child
    assert isinstance(union, Union) and len(union.children) == 3
    plain, of_q, of_v = union.children
    for branch, own in ((plain, "v_of_0"), (of_q, "q_of_1"), (of_v, "v_of_2")):
        assert isinstance(branch, Project)
        values = {item.column.name: item.scalar for item in branch.items}
        assert list(values) == ["k", "v_of_0", "q_of_1", "v_of_2"]
        for name, scalar in values.items():
            assert isinstance(scalar, Reference if name in ("k", own) else Sql), name
    assert plain.children == (T,)
    assert isinstance(of_q.children[0], Aggregate) and of_q.children[0].keys == (K, Q)
    assert [c.arguments[0].name for c in outer.calls] == ["q_of_1", "v_of_0", "v_of_2"]
    assert not any(c.distinct for c in outer.calls)


def test_without_plain_aggregates_there_is_no_plain_branch() -> None:
    """A branch of rows that no aggregate reads would only cost."""
    outer = expanded(grouped(T, (), COUNT_Q, call("d", "sum", V, distinct=True)))
    assert isinstance(outer, Aggregate) and isinstance(outer.child, Union)
    assert len(outer.child.children) == 2


def test_calls_over_the_same_arguments_share_a_branch() -> None:
    """count(distinct q) and sum(distinct q) need one inner state."""
    outer = expanded(grouped(T, (K,), COUNT_Q, call("s", "sum", Q, distinct=True)))
    assert isinstance(outer, Aggregate) and isinstance(outer.child, Aggregate)
    assert [c.column.name for c in outer.calls] == ["n", "s"]


def test_distinct_below_another_node_is_found() -> None:
    """The pass goes down the whole plan."""
    plan = expanded(grouped(where(grouped(T, (K,), COUNT_Q), "n"), (Column("n", "bigint"),)))
    inner = plan.children[0].children[0]
    assert isinstance(inner, Aggregate) and isinstance(inner.child, Aggregate)


def test_distinct_beside_an_aggregate_without_merge_stays() -> None:
    """Its groups are recomputed, by Spark's own DISTINCT."""
    plan = grouped(T, (K,), COUNT_Q, call("c", "collectset", Q))
    assert expanded(plan) == plan
