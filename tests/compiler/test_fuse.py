"""Projections that only pick columns are fused into those below them."""

from __future__ import annotations

from incremental.algebra.plan import Column, Item, Project
from incremental.compiler.fuse import fused
from tests.compiler.plans import K, Q, T, V, opaque, project, renamed, where

TWICE = Item(Column("twice", "double"), opaque("v * 2", "double"))


def test_picking_from_a_computation_is_the_computation() -> None:
    """Two projections would keep an answer out of its state's table."""
    plan = fused(project(project(T, K, Q, TWICE), renamed(TWICE.column, "x"), K))
    assert plan == project(T, Item(Column("x", "double"), TWICE.scalar), K)


def test_computing_over_a_computation_stays() -> None:
    """Expressions of the user's are opaque: one is not put into another."""
    plan = project(project(T, TWICE), Item(Column("x", "double"), opaque("twice + 1", "double")))
    assert fused(plan) == plan


def test_projection_that_changes_nothing_goes() -> None:
    """But one that drops or turns around columns stays."""
    assert fused(where(project(T, K, Q, V), "k")) == where(T, "k")
    for plan in (project(T, K, Q), project(T, Q, K, V)):
        assert fused(plan) == plan and isinstance(plan, Project)
