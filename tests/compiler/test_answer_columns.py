"""Answer columns that show the partition of a source, or the key of the topmost group-by."""

from __future__ import annotations

from deltafold.algebra.plan import Column, Expand, Item, Join, Plan, Reference, Sql, Union
from deltafold.algebra.traversal import find_group_key, find_partition_key
from tests.compiler.plans import D, K, Q, T, V, call, grouped, opaque, project, renamed, where

BY = {"t": ("Q",)}
SHOWN = Column("day", "int")


def key(plan: Plan, *columns: Column) -> str | None:
    """The partition key of an answer that shows these columns under names of their own."""
    return find_partition_key(plan, [(column, f"shown {column.name}") for column in columns], BY)


def test_a_column_is_followed_through_projections_filters_joins_and_group_bys() -> None:
    """A group-by keeps its keys, a join the columns of both sides."""
    joined = Join(left=where(T, "q > 1"), right=D, kind="left", condition=None)
    plan = grouped(project(joined, renamed(Q, "day"), K), (SHOWN, K), call("n", "count", K))
    assert key(plan, K, SHOWN) == "shown day"
    assert key(plan, K) is None


def test_a_computed_column_is_not_a_partition_key() -> None:
    """One partition may have several of its values, or several partitions the same."""
    assert key(project(T, Item(SHOWN, opaque("q + 1", "int"))), SHOWN) is None
    assert key(grouped(T, (K,), call("q_most", "max", Q, type_="int")), K, Column("q_most", "int")) is None


def test_a_union_needs_it_on_every_side() -> None:
    """Rows of another table must not count as a partition of this one."""
    other = project(T, renamed(Q, "day"))
    assert key(Union((project(T, Q), other)), Q) == "shown q"
    assert key(Union((project(T, Q), project(T, renamed(V, "day")))), Q) is None


def test_a_rollup_hides_it() -> None:
    """The subtotals over all partitions belong to none of them."""
    columns = (Column("day", "int"), Column("grouping", "int"))
    whole = Expand(T, ((Reference(Q), Sql("0", "int")), (Reference(Q), Sql("1", "int"))), columns)
    subtotals = Expand(T, ((Reference(Q), Sql("0", "int")), (Sql("NULL", "int"), Sql("1", "int"))), columns)
    assert key(whole, SHOWN) == "shown day"
    assert key(subtotals, SHOWN) is None


def test_group_key_is_followed_through_projections_and_filters() -> None:
    """A sample of the answer is drawn by it; a computed key is not one."""
    groups = where(grouped(T, (K, Q), call("n", "count", V)), "n > 1")
    assert find_group_key(groups, [(Q, "Q"), (K, "K")]) == ("K", "Q")
    assert find_group_key(project(groups, renamed(K, "x")), [(Column("x", "int"), "X")]) == ("X",)
    assert find_group_key(project(groups, Item(SHOWN, opaque("k + 1", "int"))), [(SHOWN, "day")]) == ()
    assert find_group_key(T, [(K, "K")]) == ()
