"""Lineage keys: a group-by below another starts its key with the outer one and shares its buckets."""

from __future__ import annotations

from deltafold.algebra.plan import Column, Item
from deltafold.compiler.passes.split_states import LineageKey, lineage_key, pass_key_down
from tests.compiler.plans import K, Q, T, V, call, grouped, opaque, project, renamed, where

COUNT = call("n", "count", V)


def test_outer_key_comes_first() -> None:
    """Inner groups of one outer group must be stored together."""
    assert lineage_key(grouped(T, (K, Q), COUNT), ("q",)) == LineageKey((Q, K), (Q,))


def test_outermost_group_by_keeps_its_order() -> None:
    """Without an outer key the order stays, and buckets are by the whole key."""
    assert lineage_key(grouped(T, (Q, K), COUNT), ()) == LineageKey((Q, K), (Q, K))


def test_outer_key_outside_the_inner_key_is_ignored() -> None:
    """A prefix that the state lacks cannot be hashed."""
    assert lineage_key(grouped(T, (Q, K), COUNT), ("n",)) == LineageKey((Q, K), (Q, K))


def test_total_has_no_key() -> None:
    """A state of one row has no key and no buckets."""
    assert lineage_key(grouped(T, (), COUNT), ("k",)) == LineageKey((), ())


def test_names_are_followed_through_projections_filters_and_group_bys() -> None:
    """The outer key is known below under other names."""
    assert pass_key_down(project(T, renamed(Q, "x"), K), ("x",)) == ("q",)
    assert pass_key_down(where(T, "k > 1"), ("k",)) == ("k",)
    assert pass_key_down(grouped(T, (K, Q), COUNT), ("q", "n")) == ("q",)
    assert pass_key_down(grouped(T, (K, Q), COUNT), ()) == ("k", "q")


def test_computed_outer_key_is_lost() -> None:
    """An expression of the inner keys is not a prefix of them."""
    computed = Item(Column("x", "int"), opaque("k + 1", "int"))
    assert pass_key_down(project(T, computed, Q), ("x", "q")) == ()
