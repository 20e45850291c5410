"""`group by` over relations: the variables become bags that are never built where they are only aggregated.

The head and `having` are translated after the group by is opened. An aggregate of a variable becomes a column of it, so
`sum(o.price)` is one aggregate of one state; only a variable that is returned or searched whole is collected.
"""

from __future__ import annotations

from dataclasses import replace

from deltafold.language.mrql import arrays, patterns
from deltafold.language.mrql.patterns import Bound
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.frames import Frame, FromItem, uses_columns
from deltafold.language.mrql.rows.scope import Scope
from deltafold.language.mrql.rows.values import Array, Grouped, GroupedValues, RecordValue, ScalarValue, Value
from deltafold.language.mrql.syntax import tree as T


def group_rows(group: T.GroupBy, scope: Scope, bound: Bound) -> Scope:
    """Group the rows of the scope's frame; return the scope of `having` and the head, over a frame of the groups."""
    rows = scope.frame
    key = scope.inside(scope.value(group.key), group.key.span)
    if any(isinstance(leaf, ScalarValue) and leaf.type == t.JSON for leaf in v.leaves(key)):
        raise group.key.span.error("a key of group by cannot be JSON, which has no equality. Write string(…) of it.")
    columns = [as_column(leaf, rows) for leaf in v.leaves(key)]
    keys, aggregates = list(dict.fromkeys(columns)), dict[str, str]()
    item = FromItem(lambda: group_text(rows, keys, aggregates), set(keys))
    grouped = Grouped(rows, item, aggregates)
    bags: dict[str, Value] = {name: GroupedValues(value, grouped) for name, value in bound.names.items()}
    bags["partition"] = GroupedValues(RecordValue(tuple(bound.names), tuple(bound.names.values())), grouped)
    above = scope.at(Frame(rows.names, [item], parent=rows.parent)).binding(bags)
    return patterns.bind_key(group, v.rebuild(key, columns), above)


def as_column(leaf: Value, rows: Frame) -> str:
    """Return the column that has a part of the key."""
    sql = v.pack(leaf)
    return sql if sql in rows.columns else rows.column(sql, v.hint(leaf, "k"))


def group_text(rows: Frame, keys: list[str], aggregates: dict[str, str]) -> str:
    """Write the SELECT of a group by; without keys there is one group, if there are rows."""
    shown = ", ".join([*keys, *(f"{sql} AS {name}" for name, sql in aggregates.items())])
    if not keys:
        return f"(SELECT {shown or 'count(1)'}{rows.text()} HAVING count(1) > 0)"
    return f"(SELECT {shown}{rows.text()} GROUP BY {', '.join(keys)})"


def select_over_group(select: T.Select, group: GroupedValues, scope: Scope) -> GroupedValues | None:
    """Translate a select over a group to another value of its rows; None where the group has to be collected for it."""
    first, *rest = select.bindings
    if select.group or select.order or select.distinct or group.nested:
        return None
    rows = group.grouped.rows
    inner = replace(scope.at(rows), elements=frozenset[str]())
    bound = patterns.bind(first.pattern, group.value, inner)
    inner = inner.binding(bound.names)
    for binding in rest:
        if binding.each:
            break
        bound = patterns.bind(binding.pattern, inner.value(binding.domain), inner, bound)
        inner, rest = inner.binding(bound.names), rest[1:]
    conditions = [*group.conditions, *bound.conditions]
    if rest:
        found = over_arrays(select, rest, inner, bound)
        if found is None:
            return None
        made = GroupedValues(found, group.grouped, group.conditions, True)
    else:
        conditions += [inner.condition(select.where)] if select.where else []
        made = GroupedValues(inner.value(select.head), group.grouped, tuple(conditions))
    return made if of_rows(made, scope, select) else None


def over_arrays(select: T.Select, rest: list[T.Binding], scope: Scope, bound: Bound) -> Array | None:
    """Return the heads for each row of a group, of arrays within the row; None where a generator is a relation."""
    try:
        sql, item = arrays.nest_generators(select, rest, scope, bound, lambda s, _: arrays.head(select, s))
    except arrays.NotAnArrayError:
        return None
    return Array(sql, item, True)


def of_rows(group: GroupedValues, scope: Scope, select: T.Select) -> bool:
    """Return whether a value is of one grouped row, without aggregates of the group, or elements around it."""
    rows = group.grouped.rows
    above = set(group.grouped.aggregates) | scope.elements | (scope.frame.columns - rows.columns)
    value = scope.at(rows).inside(group.value, select.head.span)
    texts = [*(v.pack(leaf) for leaf in v.leaves(value)), *group.conditions]
    return not any(uses_columns(text, above) for text in texts)
