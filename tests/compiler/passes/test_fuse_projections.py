"""Projections that only choose columns are fused into those below them."""

from __future__ import annotations

from deltafold.algebra.plan import Column, Item, Plan, Project
from deltafold.compiler.passes.fuse_projections import fuse_projections
from tests.compiler.plans import K, Q, T, V, draft, opaque, project, renamed, where

TWICE = Item(Column("twice", "double"), opaque("v * 2", "double"))


def fused(plan: Plan) -> Plan:
    return fuse_projections(draft(plan)).plan


def test_choosing_from_a_computation_is_the_computation() -> None:
    """Two projections would keep an answer out of its state's table."""
    plan = fused(project(project(T, K, Q, TWICE), renamed(TWICE.column, "x"), K))
    assert plan == project(T, Item(Column("x", "double"), TWICE.scalar), K)


def test_computing_over_a_computation_stays() -> None:
    """Expressions of the user are opaque: one cannot be substituted into another."""
    plan = project(project(T, TWICE), Item(Column("x", "double"), opaque("twice + 1", "double")))
    assert fused(plan) == plan


def test_projection_that_changes_nothing_is_dropped() -> None:
    """A projection that drops or reorders columns stays."""
    assert fused(where(project(T, K, Q, V), "k")) == where(T, "k")
    for plan in (project(T, K, Q), project(T, Q, K, V)):
        assert fused(plan) == plan and isinstance(plan, Project)
