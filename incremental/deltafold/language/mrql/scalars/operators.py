"""The operators of MRQL as Spark SQL.

Numbers are promoted by a cast of the smaller side. Division of integers truncates, and by zero it is an error; division
of doubles is that of IEEE 754, where Spark's is an error. Comparisons with NULL are not true. Tuples and records are
equal if their parts are.
"""

from __future__ import annotations

from dataclasses import replace

from deltafold.language.mrql import relations
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.frames import Frame
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.values import (
    Array,
    FrameRows,
    GroupedValues,
    RecordValue,
    RelationValue,
    ScalarValue,
    Value,
)
from deltafold.language.mrql.scalars import casts
from deltafold.language.mrql.syntax.spans import Span

COMPARISONS = ("<", "<=", ">", ">=", "=", "<>")


def _check_number(operator: str, value: Value, scope: Scope, span: Span) -> ScalarValue:
    """Return a value that is a number. Raises QueryError for another one."""
    if isinstance(value, ScalarValue) and (t.is_number(value.type) or value.type == t.NOTHING):
        return value
    raise span.error(
        f"{operator}: expected numbers, found {describe(value, scope)}. Cast it with `as`, or take a part of it."
    )


def arithmetic(operator: str, left: Value, right: Value, scope: Scope, span: Span) -> Value:
    """Translate `+ - * / mod` of two numbers; `+` of strings joins them."""
    if operator == "+" and all(isinstance(side, ScalarValue) and side.type == t.STRING for side in (left, right)):
        return ScalarValue(f"concat({v.pack(left)}, {v.pack(right)})", t.STRING)
    a = _check_number(operator, left, scope, span)
    b = _check_number(operator, right, scope, span)
    common = t.common_type(a.type, b.type)
    assert common is not None
    x = v.pack(v.convert(a, common))
    y = v.pack(v.convert(b, common))
    if operator not in ("/", "mod"):
        return ScalarValue(f"({x} {operator} {y})", common)
    if t.is_integer(common):
        sql = f"({x} div {y})" if operator == "/" else f"({x} % {y})"
        return ScalarValue(f"CAST({sql} AS {t.sql_type(common)})", common)
    x, y = (v.pack(scope.once(ScalarValue(side, common))) for side in (x, y))
    return ScalarValue(_divide(operator, x, y, t.sql_type(common)), common)


def _divide(operator: str, x: str, y: str, type_: str) -> str:
    """Return a quotient or remainder of doubles, also by zero."""
    if operator == "mod":
        return f"CASE WHEN {y} = 0 THEN CAST({x} * {t.NAN} AS {type_}) ELSE {x} % {y} END"
    return f"CASE WHEN {y} = 0 THEN CAST({x} * pow({y}, -1) AS {type_}) ELSE {x} / {y} END"


def apply_sign(operator: str, value: Value, scope: Scope, span: Span) -> Value:
    """Translate `+x` and `-x`."""
    number = _check_number(operator, value, scope, span)
    return number if operator == "+" else ScalarValue(f"(- {number.sql})", number.type)


def compare_values(operator: str, left: Value, right: Value, scope: Scope, span: Span) -> ScalarValue:
    """Translate a comparison. Raises QueryError for types that have no order."""
    if operator == "=":
        return ScalarValue(equal(left, right, scope, span), t.BOOL)
    if operator == "<>":
        return ScalarValue(f"(NOT {equal(left, right, scope, span)})", t.BOOL)
    a, b = casts.unify_values(
        [scope.inside(left, span), scope.inside(right, span)], scope, span, f"the sides of {operator}"
    )
    return ScalarValue(f"({v.pack(a)} {operator} {v.pack(b)})", t.BOOL)


def equal(left: Value, right: Value, scope: Scope, span: Span) -> str:
    """Return the condition that two values are equal."""
    sides = [scope.inside(left, span), scope.inside(right, span)]
    a, b = casts.unify_values(sides, scope, span, "the sides of =")
    return _equal_values(a, b)


def _equal_values(a: Value, b: Value) -> str:
    """Return the condition that two values of one type are equal."""
    if isinstance(a, RecordValue) and isinstance(b, RecordValue):
        parts = [_equal_values(x, y) for x, y in zip(a.parts, b.parts, strict=True)]
        return f"({' AND '.join(parts)})" if parts else "true"
    return f"({v.pack(a)} = {v.pack(b)})"


def member(value: Value, name: str, scope: Scope, span: Span) -> Value:
    """Translate `value.name`: a field of a record; of a collection of records, that of each."""
    match value:
        case RecordValue(names, parts) if names is not None and name in names:
            return parts[names.index(name)]
        case ScalarValue(_, t.XML):
            raise span.error(f"child elements are not supported: Spark gives their texts alone. Leave .{name} out.")
        case ScalarValue(sql, t.JSON):
            return ScalarValue(f"variant_get({sql}, {v.string_literal(f'$.{name}')}, 'variant')", t.JSON)
        case Array(item=item, bag=bag):
            element = scope.fresh.fresh("x")
            inner = member(v.unpack(element, item), name, scope.within(element), span)
            type_ = v.type_of(inner)
            assert type_ is not None
            if isinstance(inner, Array):
                return Array(f"flatten(transform({value.sql}, {element} -> {inner.sql}))", inner.item, bag)
            return Array(f"transform({value.sql}, {element} -> {v.pack(inner)})", type_, bag)
        case RelationValue(add_to, ordered):
            return RelationValue(lambda frame: _member_of_rows(add_to(frame), name, scope.at(frame), span), ordered)
        case GroupedValues(inner, grouped, conditions, False):
            part = member(inner, name, scope.at(grouped.rows), span)
            return GroupedValues(part, grouped, conditions, nested=isinstance(part, Array))
        case GroupedValues():
            return member(scope.inside(value, span), name, scope, span)
        case _:
            raise span.error(f"there is no field {name} in {describe(value, scope)}. Name one that is there.")


def _member_of_rows(added: FrameRows, name: str, scope: Scope, span: Span) -> FrameRows:
    """Return a field of rows; where it is a collection, its elements become rows."""
    part = member(added.value, name, scope, span)
    if isinstance(part, Array):
        column = scope.frame.explode(scope.frame.local(v.pack(part), name), name)
        part = v.unpack(column, part.item)
    elif isinstance(part, RelationValue):
        part = part.add_to(scope.frame).value
    return FrameRows(part, added.order)


def component(value: Value, position: int, scope: Scope, span: Span) -> Value:
    """Translate `value#position`: a part of a tuple, counted from 0; of a collection of tuples, that of each."""
    match value:
        case RecordValue(names, parts, positional) if (names is None or positional) and position < len(parts):
            return parts[position]
        case Array(sql, t.Tuple() | t.Record() | t.Collection() as item, bag):
            element = scope.fresh.fresh("x")
            part = component(v.unpack(element, item), position, scope.within(element), span)
            type_ = v.type_of(part)
            assert type_ is not None
            return Array(f"transform({sql}, {element} -> {v.pack(part)})", type_, bag)
        case RelationValue(add_to, ordered):

            def add_parts(frame: Frame) -> FrameRows:
                rows = add_to(frame)
                return FrameRows(component(rows.value, position, scope.at(frame), span), rows.order)

            return RelationValue(add_parts, ordered)
        case GroupedValues(inner, grouped):
            return replace(value, value=component(inner, position, scope.at(grouped.rows), span))
        case _:
            raise span.error(f"part #{position}: {describe(value, scope)} has no such part. {_suggest_part(value)}.")


def _suggest_part(value: Value) -> str:
    """Return the fix for a part that a value does not have."""
    match value:
        case RecordValue(parts=parts, names=names) if parts and (names is None or value.positional):
            return f"Use #0 to #{len(parts) - 1}"
        case RecordValue(names=names) if names:
            return f"Use a field by its name: .{', .'.join(names)}"
        case _:
            return "Take a part of a tuple"


def choose(conditions: list[str], values: list[Value], scope: Scope, span: Span) -> Value:
    """Return the value of the first true condition, or the last value; relations are filtered, not collected."""
    if any(isinstance(value, RelationValue) for value in values):
        return _choose_rows(conditions, values, scope, span)
    inside = [scope.inside(value, span) for value in values]
    return _choose_parts(conditions, casts.unify_values(inside, scope, span, "the branches"))


def _choose_parts(conditions: list[str], values: list[Value]) -> Value:
    """Return CASE, part by part."""
    first = values[0]
    if isinstance(first, RecordValue):
        parts = [
            [value.parts[i] for value in values if isinstance(value, RecordValue)] for i in range(len(first.parts))
        ]
        return RecordValue(first.names, tuple(_choose_parts(conditions, part) for part in parts), first.positional)
    branches = [f"WHEN {c} THEN {v.pack(value)}" for c, value in zip(conditions, values[:-1], strict=True)]
    sql = f"CASE {' '.join(branches)} ELSE {v.pack(values[-1])} END"
    if isinstance(first, Array):
        return Array(sql, first.item, first.bag, first.bag)
    assert isinstance(first, ScalarValue)
    return ScalarValue(sql, first.type)


def _choose_rows(conditions: list[str], values: list[Value], scope: Scope, span: Span) -> Value:
    """Return the rows of the relation whose condition is the first that is true."""
    tests = [f"coalesce({condition}, false)" for condition in conditions]
    cases = [" AND ".join([*(f"NOT {c}" for c in tests[:i]), *tests[i : i + 1]]) for i in range(len(values))]
    rows = [
        relations.keep_rows(relations.lift(value, scope, span), case) for value, case in zip(values, cases, strict=True)
    ]
    return relations.union(rows, scope, span)
