"""`select … from … where … group by … order by …` (the table of generators in docs/reference/mrql.md).

Over relations the generators are read into one frame from left to right, the conditions go above, and Catalyst makes
joins of them. A select without group, order and distinct adds nothing of its own to the frame that reads it.

`group by` makes bags of the variables, and these are not built where they are only aggregated: the head and `having`
are translated after the group by is opened, and an aggregate of a variable becomes a column of it. So `sum(o.price)` is
one aggregate of one state; only a variable that is returned or searched whole is collected.

A select over lists and bags within a row becomes higher-order functions of Spark:

| part | becomes |
| --- | --- |
| generators, where | `flatten`, `transform`, `filter` |
| group by | the keys once each; for each key the rows that have it |
| distinct; order by, limit | `array_distinct`; `array_sort` of structs, `slice` |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from deltafold.language.mrql import relations
from deltafold.language.mrql.patterns import Bound, bind, bind_key
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.collecting import sort_values
from deltafold.language.mrql.rows.frames import FRAME_COLUMN, SUBQUERY, Frame, FromItem, uses_columns
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import (
    Array,
    FrameRows,
    Grouped,
    GroupedValues,
    Order,
    RecordValue,
    RelationValue,
    ScalarValue,
    Value,
)
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.tree import Node

LeafSql = Callable[[Scope, Bound], tuple[str, Type]]
"""What each combination of elements gives: one element, and the type of its value."""


def translate_select(select: T.Select, scope: Scope) -> Value:
    """Translate a select: to a relation if a generator is one, else to an array, or a value of a group's rows."""
    binding = select.bindings[0]
    first = scope.value(binding.domain)
    if binding.is_generator and isinstance(first, GroupedValues):
        values = _select_over_group(select, first, scope)
        if values is not None:
            return values
    if not (binding.is_generator and isinstance(first, RelationValue)):
        array = _select_arrays(select, first, scope)
        if array is not None:
            return array
    rows = RelationValue(lambda frame: _add_select(select, scope, frame), ordered=select.order is not None)
    if select.distinct:
        rows = relations.distinct(rows, scope, select.span)
    if select.order is not None and select.order.limit is not None:
        return relations.first_rows(rows, _constant_limit(select.order.limit, scope), scope, select.span)
    return rows


def _constant_limit(node: Node, scope: Scope) -> str:
    """Return the number of a limit, which is the same for all rows."""
    sql, type_ = scope.pack(node)
    if SUBQUERY in sql or FRAME_COLUMN.search(sql):
        raise node.span.error("a limit is a constant. Write a number, or an element of `args`.")
    return _cast_limit(sql, type_, node)


def _add_select(select: T.Select, scope: Scope, frame: Frame) -> FrameRows:
    """Add the rows of a select to a frame, before distinct and limit."""
    rows = frame if select.group is None else frame.child()
    inner, bound = _read_generators(select.bindings, scope.at(rows))
    if select.where is not None:
        _filter_rows(select.where, inner)
    if select.group is not None:
        inner = _group_rows(select.group, inner, bound)
        if select.group.having is not None:
            _filter_rows(select.group.having, inner)
    value = inner.value(select.head)
    order = list[Order]()
    for key in select.order.keys if select.order else ():
        node, descending = _split_direction(key)
        order.append(Order(inner.pack(node)[0], descending))
    if inner.frame is not frame:
        if select.distinct or order:
            value = inner.inside(value, select.head.span)
        frame.absorb(inner.frame)
    return FrameRows(value, tuple(order))


def _read_generators(bindings: tuple[T.Binding, ...], scope: Scope) -> tuple[Scope, Bound]:
    """Read generators into the scope's frame."""
    bound = Bound()
    for binding in bindings:
        value = scope.value(binding.domain)
        if binding.is_generator:
            value = relations.lift(value, scope, binding.domain.span).add_to(scope.frame).value
        else:
            value = scope.once(value)
        before = len(bound.conditions)
        bound = bind(binding.pattern, value, scope, bound)
        for condition in bound.conditions[before:]:
            scope.frame.filter(condition)
        scope = scope.binding(bound.names)
    return scope, bound


def _filter_rows(node: Node, scope: Scope) -> None:
    """Keep the rows for which a condition is true."""
    if isinstance(node, T.Binary) and node.operator == "and":
        _filter_rows(node.left, scope)
        _filter_rows(node.right, scope)
    else:
        scope.frame.filter(scope.condition(node))


def _group_rows(group: T.GroupBy, scope: Scope, bound: Bound) -> Scope:
    """Group the rows of the scope's frame; return the scope of `having` and the head, over a frame of the"""
    rows = scope.frame
    key = scope.inside(scope.value(group.key), group.key.span)
    if any(isinstance(leaf, ScalarValue) and leaf.type == t.JSON for leaf in v.leaves(key)):
        raise group.key.span.error("a key of group by cannot be JSON, which has no equality. Write string(…) of it.")
    columns = [_as_column(leaf, rows) for leaf in v.leaves(key)]
    keys = list(dict.fromkeys(columns))
    aggregates = dict[str, str]()
    item = FromItem(lambda: _group_text(rows, keys, aggregates), set(keys))
    grouped = Grouped(rows, item, aggregates)
    bags: dict[str, Value] = {name: GroupedValues(value, grouped) for name, value in bound.names.items()}
    bags["partition"] = GroupedValues(RecordValue(tuple(bound.names), tuple(bound.names.values())), grouped)
    above = scope.at(Frame(rows.names, [item], parent=rows.parent)).binding(bags)
    return bind_key(group, v.rebuild(key, columns), above)


def _as_column(leaf: Value, rows: Frame) -> str:
    """Return the column that has a part of the key."""
    sql = v.pack(leaf)
    return sql if sql in rows.columns else rows.column(sql, v.hint(leaf, "k"))


def _group_text(rows: Frame, keys: list[str], aggregates: dict[str, str]) -> str:
    """Write the SELECT of a group by; without keys there is one group, if there are rows."""
    shown = ", ".join([*keys, *(f"{sql} AS {name}" for name, sql in aggregates.items())])
    if not keys:
        return f"(SELECT {shown or 'count(1)'}{rows.text()} HAVING count(1) > 0)"
    return f"(SELECT {shown}{rows.text()} GROUP BY {', '.join(keys)})"


def _select_over_group(select: T.Select, group: GroupedValues, scope: Scope) -> GroupedValues | None:
    """Translate a select over a group to another value of its rows; None where the group has to be collected for it."""
    first, *rest = select.bindings
    if select.group or select.order or select.distinct or group.nested:
        return None
    rows = group.grouped.rows
    inner = replace(scope.at(rows), elements=frozenset[str]())
    bound = bind(first.pattern, group.value, inner)
    inner = inner.binding(bound.names)
    while rest and not rest[0].is_generator:
        binding = rest.pop(0)
        bound = bind(binding.pattern, inner.value(binding.domain), inner, bound)
        inner = inner.binding(bound.names)
    if rest:
        array = _select_within_row(select, rest, inner, bound)
        if array is None:
            return None
        values = GroupedValues(array, group.grouped, group.conditions, nested=True)
    else:
        conditions = [*group.conditions, *bound.conditions]
        conditions += [inner.condition(select.where)] if select.where else []
        values = GroupedValues(inner.value(select.head), group.grouped, tuple(conditions))
    return values if _depends_on_rows_alone(values, scope, select) else None


def _select_within_row(select: T.Select, rest: list[T.Binding], scope: Scope, bound: Bound) -> Array | None:
    """Return the heads for each row of a group, of arrays within the row; None where a generator is a relation."""
    try:
        sql, item = _nest_generators(select, rest, scope, bound, lambda s, _: _translate_head(select, s))
    except NotAnArrayError:
        return None
    return Array(sql, item, bag=True)


def _depends_on_rows_alone(group: GroupedValues, scope: Scope, select: T.Select) -> bool:
    """Return whether a value needs one grouped row alone: no aggregate of the group, and no element around it."""
    rows = group.grouped.rows
    above = set(group.grouped.aggregates) | scope.elements | (scope.frame.columns - rows.columns)
    value = scope.at(rows).inside(group.value, select.head.span)
    texts = [*(v.pack(leaf) for leaf in v.leaves(value)), *group.conditions]
    return not any(uses_columns(text, above) for text in texts)


class NotAnArrayError(Exception):
    """A generator is a relation, so the select is one."""


def _select_arrays(select: T.Select, first: Value | None, scope: Scope) -> Array | None:
    """Translate a select over arrays to an array; None where a generator is a relation.

    first: the value of the first generator's domain, where that is known.
    """
    try:
        if select.group is None:
            array, item = _nest_generators(
                select, list(select.bindings), scope, Bound(), lambda s, _: _translate_head(select, s), first
            )
        else:
            array, item = _group_array(select, select.group, scope, first)
    except NotAnArrayError:
        return None
    return _finish_array(select, array, item, scope)


def _nest_generators(
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
        array = f"array({element})"
        return (f"if({' AND '.join(conditions)}, {array}, array())" if conditions else array), item
    binding, *rest = bindings
    value = scope.value(binding.domain) if first is None else first
    if not binding.is_generator:
        bound = bind(binding.pattern, scope.once(value), scope, bound)
        return _nest_generators(select, rest, scope.binding(bound.names), bound, leaf)
    domain = _generator_array(value, binding, scope)
    name = scope.fresh.fresh("x")
    outer = bound.conditions
    inner = scope.within(name)
    bound = bind(binding.pattern, v.unpack(name, domain.item), inner, bound)
    inner = inner.binding(bound.names)
    conditions = list(bound.conditions[len(outer) :])
    bound = Bound(bound.names, outer)
    if not rest and not outer:
        conditions += [inner.condition(select.where)] if select.where else []
        element, item = leaf(inner, bound)
        return f"transform({_filter_array(domain, name, conditions)}, {name} -> {element})", item
    sql, item = _nest_generators(select, rest, inner, bound, leaf)
    return f"flatten(transform({_filter_array(domain, name, conditions)}, {name} -> {sql}))", item


def _generator_array(value: Value, binding: T.Binding, scope: Scope) -> Array:
    """Return the array that a generator ranges over."""
    if isinstance(value, GroupedValues):
        value = scope.inside(value, binding.domain.span)
    if isinstance(value, RelationValue):
        raise NotAnArrayError
    if isinstance(value, ScalarValue) and value.type == t.JSON:
        return Array(f"CAST({value.sql} AS ARRAY<VARIANT>)", t.JSON, bag=False)
    if not isinstance(value, Array):
        shown = describe(value, scope)
        raise binding.domain.span.error(f"expected a collection, found {shown}. Write `pattern = value` for one value.")
    return value


def _filter_array(array: Array, name: str, conditions: Sequence[str]) -> str:
    """Keep the elements of an array that fulfil conditions."""
    sql = v.pack(array)
    return f"filter({sql}, {name} -> {' AND '.join(conditions)})" if conditions else sql


def _translate_head(select: T.Select, scope: Scope) -> tuple[str, Type]:
    """Return the head; in an ordered select a struct of the keys and the head."""
    sql, item = scope.pack(select.head)
    if select.order is None:
        return sql, item
    keys = [f"'k{i}', {scope.pack(_split_direction(key)[0])[0]}" for i, key in enumerate(select.order.keys)]
    return f"named_struct({', '.join(keys)}, 'v', {sql})", item


def _split_direction(key: T.SortKey) -> tuple[T.Node, bool]:
    """Return the expression of a sort key and whether it descends; `inv(e)` is e in the other direction."""
    node = key.value
    descending = key.descending
    while isinstance(node, T.FunctionCall) and node.name == "inv" and len(node.arguments) == 1:
        (node,) = node.arguments
        descending = not descending
    return node, descending


def _finish_array(select: T.Select, array: str, item: Type, scope: Scope) -> Array:
    """Apply distinct, order and limit to the heads; a head in an ordered select is within a struct."""
    array = f"array_distinct({array})" if select.distinct else array
    if select.order is None:
        return Array(array, item, bag=True)
    order = [Order("", _split_direction(key)[1]) for key in select.order.keys]
    sql = sort_values(array, order, scope.fresh)
    if select.order.limit is not None:
        sql = f"slice({sql}, 1, {_cast_limit(*scope.pack(select.order.limit), select.order.limit)})"
    return Array(sql, item, bag=False)


def _cast_limit(sql: str, type_: Type, node: T.Node) -> str:
    """Return the number of a limit. Raises QueryError unless it is an integer or a text of digits."""
    if not t.is_integer(type_) and not (type_ == t.STRING and sql.strip("'").isdigit()):
        actual = sql if sql.startswith("'") else t.write_type(type_)
        raise node.span.error(f"limit: expected an integer, found {actual}. Write one, or cast it with `as int`.")
    return f"CAST({sql} AS INT)"


def _group_array(select: T.Select, group: T.GroupBy, scope: Scope, first: Value | None) -> tuple[str, Type]:
    """Return the heads of the groups of an array's elements."""
    variables = dict[str, Value]()
    keys = list[Value]()

    def pack_row(inner: Scope, bound: Bound) -> tuple[str, Type]:
        for name, value in bound.names.items():
            variables[name] = inner.inside(value, select.span)
        keys[:] = [inner.inside(inner.value(group.key), group.key.span)]
        parts = [f"'v{i}', {v.pack(value)}" for i, value in enumerate(variables.values())]
        parts.append(f"'key', {v.pack(keys[0])}")
        return f"named_struct({', '.join(parts)})", t.BOOL

    packed_rows, _ = _nest_generators(select, list(select.bindings), scope, Bound(), pack_row, first)
    rows = scope.fresh.fresh("rows")
    row = scope.fresh.fresh("r")
    key = scope.fresh.fresh("k")
    group_rows = f"filter({rows}, {row} -> {row}.key <=> {key})"
    types = [type_ for type_ in map(v.type_of, (*variables.values(), keys[0])) if type_ is not None]
    *item_types, key_type = types
    bags = {
        name: Array(f"transform({group_rows}, {row} -> {row}.v{i})", type_, bag=True)
        for i, (name, type_) in enumerate(zip(variables, item_types, strict=True))
    }
    whole = RecordValue(tuple(variables), tuple(v.unpack(f"{row}.v{i}", type_) for i, type_ in enumerate(item_types)))
    bags["partition"] = Array(
        f"transform({group_rows}, {row} -> {v.pack(whole)})", t.Record(tuple(variables), tuple(item_types)), bag=True
    )
    inner = bind_key(group, v.unpack(key, key_type), scope.within(rows, key).binding(bags))
    element, item = _translate_head(select, inner)
    unique_keys = f"array_distinct(transform({rows}, {row} -> {row}.key))"
    if group.having:
        unique_keys = f"filter({unique_keys}, {key} -> {inner.condition(group.having)})"
    heads = f"{rows} -> transform({unique_keys}, {key} -> {element})"
    return f"element_at(transform(array({packed_rows}), {heads}), 1)", item
