"""`select` over lists and bags within a row, as higher-order functions of Spark.

| part | becomes |
| --- | --- |
| generators, where | `flatten`, `transform`, `filter` |
| group by | the keys once each; for each key the rows that have it |
| distinct; order by, limit | `array_distinct`; `array_sort` of structs, `slice` |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deltafold.language.mrql import patterns
from deltafold.language.mrql.patterns import Bound, bind_key
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.collecting import sort_values
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import (
    Array,
    GroupedValues,
    Order,
    RecordValue,
    RelationValue,
    ScalarValue,
    Value,
)
from deltafold.language.mrql.syntax import tree as T

LeafSql = Callable[[Scope, Bound], tuple[str, Type]]
"""What each combination of elements gives: one element, and the type of its value."""


class NotAnArrayError(Exception):
    """A generator is a relation, so the select is one."""


def select_arrays(select: T.Select, first: Value | None, scope: Scope) -> Array | None:
    """Translate a select over arrays to an array; None where a generator is a relation.

    first: the value of the first generator's domain, where that is known.
    """
    try:
        if select.group is None:
            array, item = nest_generators(
                select, list(select.bindings), scope, Bound(), lambda s, _: head(select, s), first
            )
        else:
            array, item = group_array(select, select.group, scope, first)
    except NotAnArrayError:
        return None
    return finish_array(select, array, item, scope)


def nest_generators(
    select: T.Select,
    bindings: list[T.Binding],
    scope: Scope,
    bound: Bound,
    leaf: LeafSql,
    first: Value | None = None,
) -> tuple[str, Type]:
    """Return the array of the heads of all combinations of elements that fulfil the conditions."""
    if not bindings:
        conditions = [*bound.conditions, *([scope.condition(select.where)] if select.where else [])]
        element, item = leaf(scope, bound)
        return (
            f"if({' AND '.join(conditions)}, array({element}), array())" if conditions else f"array({element})"
        ), item
    binding, *rest = bindings
    value = scope.value(binding.domain) if first is None else first
    if not binding.each:
        bound = patterns.bind(binding.pattern, scope.once(value), scope, bound)
        return nest_generators(select, rest, scope.binding(bound.names), bound, leaf)
    array = generator(value, binding, scope)
    name = scope.fresh.fresh("x")
    outer, inner = bound.conditions, scope.within(name)
    bound = patterns.bind(binding.pattern, v.unpack(name, array.item), inner, bound)
    inner, conditions = inner.binding(bound.names), list(bound.conditions[len(outer) :])
    bound = Bound(bound.names, outer)
    if not rest and not outer:
        conditions += [inner.condition(select.where)] if select.where else []
        element, item = leaf(inner, bound)
        return f"transform({filter_array(array, name, conditions)}, {name} -> {element})", item
    sql, item = nest_generators(select, rest, inner, bound, leaf)
    return f"flatten(transform({filter_array(array, name, conditions)}, {name} -> {sql}))", item


def generator(value: Value, binding: T.Binding, scope: Scope) -> Array:
    """Return the array that a generator ranges over."""
    if isinstance(value, GroupedValues):
        value = scope.inside(value, binding.domain.span)
    if isinstance(value, RelationValue):
        raise NotAnArrayError
    if isinstance(value, ScalarValue) and value.type == t.JSON:
        return Array(f"CAST({value.sql} AS ARRAY<VARIANT>)", t.JSON, False)
    if not isinstance(value, Array):
        shown = describe(value, scope)
        raise binding.domain.span.error(f"expected a collection, found {shown}. Write `pattern = value` for one value.")
    return value


def filter_array(array: Array, name: str, conditions: Sequence[str]) -> str:
    """Keep the elements of an array that fulfil conditions."""
    sql = v.pack(array)
    return f"filter({sql}, {name} -> {' AND '.join(conditions)})" if conditions else sql


def head(select: T.Select, scope: Scope) -> tuple[str, Type]:
    """Return the head; in an ordered select a struct of the keys and the head."""
    sql, item = scope.pack(select.head)
    if select.order is None:
        return sql, item
    keys = [f"'k{i}', {scope.pack(split_direction(key)[0])[0]}" for i, key in enumerate(select.order.keys)]
    return f"named_struct({', '.join(keys)}, 'v', {sql})", item


def split_direction(key: T.SortKey) -> tuple[T.Node, bool]:
    """Return the expression of a sort key and whether it descends; `inv(e)` is e in the other direction."""
    node, descending = key.value, key.descending
    while isinstance(node, T.FunctionCall) and node.name == "inv" and len(node.arguments) == 1:
        node, descending = node.arguments[0], not descending
    return node, descending


def finish_array(select: T.Select, array: str, item: Type, scope: Scope) -> Array:
    """Apply distinct, order and limit to the heads; a head in an ordered select is within a struct."""
    array = f"array_distinct({array})" if select.distinct else array
    if select.order is None:
        return Array(array, item, True)
    order = [Order("", split_direction(key)[1]) for key in select.order.keys]
    sql = sort_values(array, order, scope.fresh)
    if select.order.limit is not None:
        sql = f"slice({sql}, 1, {cast_limit(*scope.pack(select.order.limit), select.order.limit)})"
    return Array(sql, item, False)


def cast_limit(sql: str, type_: Type, node: T.Node) -> str:
    """Return the number of a limit. Raises QueryError for what is neither an integer nor a text of digits."""
    if not t.is_integer(type_) and not (type_ == t.STRING and sql.strip("'").isdigit()):
        found = sql if sql.startswith("'") else t.write_type(type_)
        raise node.span.error(f"limit: expected an integer, found {found}. Write one, or cast it with `as int`.")
    return f"CAST({sql} AS INT)"


def group_array(select: T.Select, group: T.GroupBy, scope: Scope, first: Value | None) -> tuple[str, Type]:
    """Return the heads of the groups of an array's elements."""
    variables, keys = dict[str, Value](), list[Value]()

    def row(inner: Scope, bound: Bound) -> tuple[str, Type]:
        for name, value in bound.names.items():
            variables[name] = inner.inside(value, select.span)
        keys[:] = [inner.inside(inner.value(group.key), group.key.span)]
        parts = [f"'v{i}', {v.pack(value)}" for i, value in enumerate(variables.values())]
        parts.append(f"'key', {v.pack(keys[0])}")
        return f"named_struct({', '.join(parts)})", t.BOOL

    rows, _ = nest_generators(select, list(select.bindings), scope, Bound(), row, first)
    all_rows, one, key = (scope.fresh.fresh(hint) for hint in ("rows", "r", "k"))
    mine = f"filter({all_rows}, {one} -> {one}.key <=> {key})"
    types = [type_ for type_ in map(v.type_of, (*variables.values(), keys[0])) if type_ is not None]
    *item_types, key_type = types
    bags = {
        name: Array(f"transform({mine}, {one} -> {one}.v{i})", item_types[i], True) for i, name in enumerate(variables)
    }
    whole = RecordValue(tuple(variables), tuple(v.unpack(f"{one}.v{i}", type_) for i, type_ in enumerate(item_types)))
    bags["partition"] = Array(
        f"transform({mine}, {one} -> {v.pack(whole)})", t.Record(tuple(variables), tuple(item_types)), True
    )
    inner = bind_key(group, v.unpack(key, key_type), scope.within(all_rows, key).binding(bags))
    element, item = head(select, inner)
    having = [inner.condition(group.having)] if group.having else []
    unique = f"array_distinct(transform({all_rows}, {one} -> {one}.key))"
    chosen = f"filter({unique}, {key} -> {having[0]})" if having else unique
    return f"element_at(transform(array({rows}), {all_rows} -> transform({chosen}, {key} -> {element})), 1)", item
