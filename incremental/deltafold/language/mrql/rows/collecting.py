"""Collect the rows of a relation or a group as an array: a bag in order, so that equal bags are equal, or a list.

NULLs are elements too, which Spark's collect_list leaves out: they are collected within structs.
"""

from __future__ import annotations

from collections.abc import Sequence

from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.frames import FreshNames
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import Array, GroupedValues, Order, RecordValue, Value


def collecting_aggregate(
    value: Value, order: Sequence[Order], packed: str, names: FreshNames, where: str = ""
) -> tuple[Type, str]:
    """Return the type of a value, and the aggregate that collects it in order; where: a FILTER, or nothing."""
    item = v.type_of(value)
    assert item is not None
    if order:
        keys = "".join(f"'k{position}', {key.sql}, " for position, key in enumerate(order))
        return item, sort_values(f"collect_list(named_struct({keys}'v', {packed})){where}", order, names)
    if isinstance(value, RecordValue) and value.parts:
        return item, f"sort_array(collect_list({packed}){where})"
    return item, f"transform(sort_array(collect_list(named_struct('v', {packed})){where}), _x -> _x.v)"


def sort_values(array: str, order: Sequence[Order], names: FreshNames) -> str:
    """Return the values `v` of an array of structs, sorted by their keys `k0`, `k1`, …; ties by the values."""
    if not any(key.descending for key in order):
        return f"transform(sort_array({array}), _x -> _x.v)"
    a = names.fresh("a")
    b = names.fresh("b")
    compared = f"CASE WHEN {a}.v <=> {b}.v THEN 0 WHEN {a}.v IS NULL OR {a}.v < {b}.v THEN -1 ELSE 1 END"
    for position, key in reversed(list(enumerate(order))):
        first, second = (b, a) if key.descending else (a, b)
        smaller = f"{first}.k{position} IS NULL OR {first}.k{position} < {second}.k{position}"
        compared = f"CASE WHEN {a}.k{position} <=> {b}.k{position} THEN {compared} WHEN {smaller} THEN -1 ELSE 1 END"
    return f"transform(array_sort({array}, ({a}, {b}) -> {compared}), _x -> _x.v)"


def gather(group: GroupedValues, value: Value) -> Array:
    """Return a group as an array, all of which its state stores; value: that of the group, inside a row."""
    rows = group.grouped.rows
    if group.nested:
        assert isinstance(value, Array)
        collected = f"collect_list({rows.local(value.sql, 'v')}){filter_clause(group)}"
        return Array(aggregate(group, f"sort_array(flatten({collected}))", "bag"), value.item, bag=True, sorted=True)
    packed = rows.local(v.pack(value), v.hint(value))
    item, sql = collecting_aggregate(value, (), packed, rows.names, filter_clause(group))
    return Array(aggregate(group, sql, "bag"), item, bag=True, sorted=True)


def filter_clause(group: GroupedValues, *more: str) -> str:
    """Write the FILTER of an aggregate of a group; more: conditions beside its own."""
    conditions = [group.grouped.rows.local(condition, "if") for condition in (*group.conditions, *more)]
    return f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""


def aggregate(group: GroupedValues, sql: str, hint: str) -> str:
    """Return the column that has an aggregate of a group; the same aggregate is one column."""
    grouped = group.grouped
    for name, existing in grouped.aggregates.items():
        if existing == sql:
            return name
    name = grouped.rows.names.fresh(hint)
    grouped.aggregates[name] = sql
    grouped.item.columns.add(name)
    return name
