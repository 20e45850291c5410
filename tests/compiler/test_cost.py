"""The estimates behind policy auto: what they grow with, and which mode they favour."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deltafold.algebra.constraints import AppendOnlyFact, ForeignKeyFact, PrimaryKeyFact
from deltafold.algebra.plan import Column, Given, GroupwiseOp, Join, JoinKind, Loop, Plan, Reference
from deltafold.algebra.program import Estimate, Volume
from deltafold.algebra.tuning import CostRates
from deltafold.compiler.compile import compile_query
from deltafold.compiler.cost import estimate_cost
from tests.compiler.plans import K2, D, K, Q, T, V, call, draft, grouped, opaque, project, renamed

GIGABYTE, RATES = 1e9, CostRates()
SUM, LARGEST = call("s", "sum", Q), call("hi", "max", Q, type_="int")
JOINED = Join(left=T, right=D, kind="inner", condition=opaque("k = k2"), keys=())


def estimated(
    plan: Plan, t: float = GIGABYTE, change: float = 1e6, d: float = GIGABYTE, moved: float = 0.0, **options: Any
) -> Estimate:
    program = compile_query(draft(plan, **options))
    return estimate_cost(
        program, Volume(total={"t": t, "d": d}, change={"t": change, "d": moved}, columns={"t": 3, "d": 2}), RATES
    )


def joined(kind: JoinKind, left: Plan = T, right: Plan = D) -> Join:
    return Join(left=left, right=right, kind=kind, condition=opaque("k = k2"), keys=())


def test_large_sources_are_refreshed_and_small_ones_recomputed() -> None:
    nested = grouped(grouped(T, (K, V), SUM), (K,), call("n", "count"))
    large, small = estimated(nested), estimated(nested, t=1e6, change=1e3)
    assert large.refresh < large.recompute
    assert small.refresh > small.recompute


def test_a_small_state_is_rewritten_and_a_large_one_merged() -> None:
    small, large = (estimated(grouped(T, (K,), SUM), t=t, change=0.1) for t in (GIGABYTE / 10, GIGABYTE))
    assert small.refresh == RATES.rewrite_seconds and large.refresh == RATES.merge_seconds


def test_a_refresh_grows_with_the_change_a_recompute_with_the_source() -> None:
    small, large = (estimated(grouped(T, (K,), SUM), change=change) for change in (1e6, GIGABYTE))
    assert small.refresh < large.refresh and small.recompute == large.recompute


def test_a_join_reads_its_other_inputs() -> None:
    small, large = (estimated(grouped(JOINED, (K,), SUM), d=d) for d in (1e6, GIGABYTE))
    assert small.refresh < large.refresh


def test_groups_that_may_be_recomputed_count_as_read() -> None:
    added, extreme = (estimated(grouped(T, (K,), aggregate)) for aggregate in (SUM, LARGEST))
    assert added.refresh < extreme.refresh and added.recompute == extreme.recompute


def test_windows_read_their_input_twice() -> None:
    window = GroupwiseOp(child=T, kind="window", keys=(K,), columns=T.columns, text="rank()")
    assert estimated(window).refresh > estimated(T).refresh + 1.9 * GIGABYTE / RATES.scan_bytes


def test_a_window_over_exact_columns_reads_a_large_input_once() -> None:
    """What was is what is less the change (pruning.py); doubles that are equal need not be the same bits."""
    narrow = project(T, K, Q)
    window = GroupwiseOp(child=narrow, kind="window", keys=(K,), columns=narrow.columns, text="rank()")
    few, many = (estimated(window, change=change).refresh for change in (1e6, 1e8))
    once = GIGABYTE * 1.0 / RATES.scan_bytes
    assert 0.9 * once < few - estimated(narrow).refresh < 1.1 * once
    assert many > few + 0.9 * once


@pytest.mark.parametrize(("change", "moved"), [(1e6, 0.0), (0.0, 1e6), (1e6, 1e6)])
def test_a_right_join_is_the_left_join_of_its_sides_exchanged(change: float, moved: float) -> None:
    """The refresh runs it so; a full join is both of its sides tested."""
    sizes = {"t": GIGABYTE / 2, "change": change, "moved": moved}
    right = estimated(joined("right"), **sizes).refresh
    assert right == estimated(joined("left", D, T), **sizes).refresh
    one = estimated(joined("left"), **sizes).refresh
    assert estimated(joined("full"), **sizes).refresh > max(one, right)


def test_a_term_that_a_declared_key_empties_reads_nothing() -> None:
    """Rows that are only added to what others refer to match none of these."""
    keys = ((Reference(K), Reference(K2), False),)
    plan = grouped(Join(left=T, right=D, kind="inner", condition=opaque("k = k2"), keys=keys), (K,), SUM)
    refers = (PrimaryKeyFact("d", ("k2",)), ForeignKeyFact("t", ("K",), "d", ("k2",)))
    added = {"t": GIGABYTE, "d": 1e6, "change": 0.0, "moved": 1e5}
    unknown, empty = (estimated(plan, facts=facts, **added) for facts in (refers, (*refers, AppendOnlyFact("d"))))
    assert empty.refresh < unknown.refresh - 0.5 * GIGABYTE / RATES.scan_bytes
    assert empty.recompute == unknown.recompute


def test_only_columns_that_are_read_count() -> None:
    narrow = estimated(grouped(project(T, V), (V,)))
    assert narrow.recompute == estimated(grouped(T, (V,))).recompute


def test_a_state_of_a_state_costs_its_own_merge() -> None:
    within = grouped(T, (K, V), SUM)
    twice = grouped(within, (K,), call("n", "count"))
    assert estimated(within).refresh < estimated(twice).refresh < 2.5 * estimated(within).refresh


def test_rounds_are_those_of_the_last_epochs() -> None:
    """Protects from a recursion that is kept though each refresh takes more rounds than the batch has levels."""
    node, known = Column("node", "int"), Column("known", "int")
    found = Join(
        left=Given("loop_1", (known,)),
        right=D,
        kind="inner",
        condition=opaque("known = k2"),
        keys=((Reference(known), Reference(K2), False),),
    )
    loop = Loop(
        name="loop_1",
        kind="set",
        init=project(T, K),
        step=project(found, renamed(K2, "next")),
        columns=(node,),
        limit=1000,
    )
    program = compile_query(draft(loop))
    sizes = Volume(total={"t": 1e6, "d": 1e6}, change={"t": 1e3, "d": 0.0}, columns={"t": 3, "d": 2})
    few, many, deep = (
        estimate_cost(program, replace(sizes, rounds={"loop_1": rounds}, levels={"loop_1": levels}), RATES)
        for rounds, levels in ((1, 10), (40, 10), (1, 100))
    )
    assert few.refresh < few.recompute < many.refresh
    assert few.recompute == many.recompute < deep.recompute and few.refresh == deep.refresh
