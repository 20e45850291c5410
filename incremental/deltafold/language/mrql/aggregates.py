"""Aggregates of collections, wherever these are.

| of | becomes |
| --- | --- |
| an array | `size`, `aggregate`, `array_max` … |
| a relation | a scalar subquery |
| a group | a column of the group by: an aggregate of one state |

Of no elements `sum` and `count` are 0, `all` is true, `some` false, `avg` NaN, `min` and `max` NULL. NULLs count as
elements, and are otherwise left out; a condition that is NULL is not true.
"""

from __future__ import annotations

from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.collecting import aggregate, filter_clause
from deltafold.language.mrql.rows.frames import SUBQUERY
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import Array, GroupedValues, RelationValue, ScalarValue, Value
from deltafold.language.mrql.syntax.spans import Span

AGGREGATE_NAMES = ("count", "sum", "avg", "min", "max", "some", "all")


def _result_type(name: str, item: Type | None, span: Span, shown: str) -> Type:
    """Return the type of an aggregate of elements of a type. Raises QueryError where there is none."""
    if name == "count":
        return t.LONG
    if name in ("sum", "avg"):
        total = None if item is None else t.sum_type(item)
        if total is None:
            raise span.error(f"{name}: expected a bag of numbers, found one of {shown}. Take a part that is a number.")
        return t.DOUBLE if name == "avg" else total
    if name in ("some", "all"):
        if item not in (t.BOOL, t.NOTHING):
            raise span.error(f"{name}: expected a bag of bool, found one of {shown}. Compare its elements first.")
        return t.BOOL
    if item is None or not t.is_scalar(item):
        raise span.error(f"{name}: expected a bag of scalars, found one of {shown}. Order by it, and take the first.")
    return item


def translate_aggregate(name: str, value: Value, scope: Scope, span: Span) -> Value:
    """Translate an aggregate of a collection. Raises QueryError for another value."""
    match value:
        case Array(item=item):
            type_ = _result_type(name, item, span, t.write_type(item))
            return ScalarValue(_of_array(name, value, type_, scope), type_)
        case RelationValue():
            return _of_relation(name, value, scope, span)
        case GroupedValues():
            return of_group(name, value, scope, span)
        case _:
            actual = describe(value, scope)
            fix = "Write {…} around it"
            if actual == "variant":
                fix = "Select the elements of its array, `select x from x in …`"
            raise span.error(f"{name}: expected a collection, found {actual}. {fix}.")


def _zero_of(type_: Type) -> str:
    """Return the sum of an empty bag."""
    return "0L" if type_ == t.LONG else "0D" if type_ == t.DOUBLE else f"CAST(0 AS {t.sql_type(type_)})"


def _of_array(name: str, array: Array, type_: Type, scope: Scope) -> str:
    """Translate an aggregate of an array."""
    sql = array.sql
    total = scope.fresh.fresh("s")
    element = scope.fresh.fresh("x")
    if array.item == t.NOTHING:
        return {"count": "0L", "sum": "0L", "avg": t.NAN, "some": "false", "all": "true"}.get(name, "NULL")
    match name:
        case "count":
            return f"CAST(size({sql}) AS BIGINT)"
        case "sum":
            sql_type = t.sql_type(type_)
            zero = _zero_of(type_)
            new_total = f"{total} + coalesce(CAST({element} AS {sql_type}), {zero})"
            new_total = f"CAST({new_total} AS {sql_type})" if isinstance(type_, t.Foreign) else new_total
            return f"aggregate({sql}, {zero}, ({total}, {element}) -> {new_total})"
        case "avg":
            present = f"filter({sql}, {element} -> {element} IS NOT NULL)"
            start = "named_struct('s', 0D, 'n', 0D)"
            new_total = f"named_struct('s', {total}.s + CAST({element} AS DOUBLE), 'n', {total}.n + 1D)"
            end = f"if({total}.n = 0, {t.NAN}, {total}.s / {total}.n)"
            return f"aggregate({present}, {start}, ({total}, {element}) -> {new_total}, {total} -> {end})"
        case "min" | "max":
            return f"array_{name}({sql})"
        case "some":
            return f"exists({sql}, {element} -> coalesce({element}, false))"
        case _:
            return f"forall({sql}, {element} -> coalesce({element}, false))"


def _over_rows(name: str, x: str, where: str = "") -> str:
    """Return Spark's aggregate of an expression over rows; where: a FILTER, or nothing."""
    match name:
        case "count":
            return f"count(1){where}"
        case "some":
            return f"bool_or({x}){where}"
        case "all":
            return f"bool_and(coalesce({x}, false)){where}"
        case "avg":
            return f"avg(CAST({x} AS DOUBLE)){where}"
        case _:
            return f"{name}({x}){where}"


def _default_to_empty(name: str, type_: Type, sql: str) -> str:
    """Return an aggregate that has MRQL's value where there are no elements, for which Spark's is NULL."""
    zero = {"sum": _zero_of(type_), "avg": t.NAN, "some": "false", "all": "true"}.get(name)
    return f"coalesce({sql}, {zero})" if zero else sql


def _of_relation(name: str, relation: RelationValue, scope: Scope, span: Span) -> ScalarValue:
    """Translate an aggregate of a relation's rows."""
    frame = scope.frame.child()
    value = relation.add_to(frame).value
    x = "1"
    type_ = t.LONG
    if name != "count":
        value = scope.at(frame).inside(value, span)
        type_ = _result_type(name, v.type_of(value), span, describe(value, scope))
        x = frame.local(v.pack(value), v.hint(value))
    sql = _default_to_empty(name, type_, _over_rows(name, x))
    return ScalarValue(scope.subquery(f"{SUBQUERY}{sql}{frame.text()})", span), type_)


def of_group(name: str, group: GroupedValues, scope: Scope, span: Span) -> Value:
    """Translate an aggregate of the rows of a group: a column of its group by."""
    rows = group.grouped.rows
    where = filter_clause(group)
    if name == "count" and not group.nested:
        return ScalarValue(aggregate(group, _over_rows(name, "1", where), "n"), t.LONG)
    value = scope.at(rows).inside(group.value, span)
    if group.nested:
        assert isinstance(value, Array)
        return _of_nested(name, value, group, scope, span)
    type_ = _result_type(name, v.type_of(value), span, describe(value, scope))
    x = rows.local(v.pack(value), v.hint(value))
    column = aggregate(group, _over_rows(name, x, where), v.hint(value))
    return ScalarValue(_default_to_empty(name, type_, column), type_)


def _of_nested(name: str, array: Array, group: GroupedValues, scope: Scope, span: Span) -> Value:
    """Translate an aggregate of the elements of arrays: first of each array, then of these."""
    type_ = _result_type(name, array.item, span, t.write_type(array.item))
    rows = group.grouped.rows
    where = filter_clause(group)

    def total(outer: str, inner: str, inner_type: Type) -> str:
        of_one_row = rows.local(_of_array(inner, array, inner_type, scope), inner)
        return aggregate(group, _over_rows(outer, of_one_row, where), inner)

    match name:
        case "count" | "sum":
            summed = f"coalesce({total('sum', name, type_)}, {_zero_of(type_)})"
            return ScalarValue(
                f"CAST({summed} AS {t.sql_type(type_)})" if isinstance(type_, t.Foreign) else summed, type_
            )
        case "avg":
            present = Array(f"filter({array.sql}, _x -> _x IS NOT NULL)", array.item, bag=True)
            count = rows.local(_of_array("count", present, t.LONG, scope), "n")
            n = aggregate(group, _over_rows("sum", count, where), "n")
            s = total("sum", "sum", t.DOUBLE)
            return ScalarValue(f"if(coalesce({n}, 0) = 0, {t.NAN}, CAST({s} AS DOUBLE) / {n})", type_)
        case _:
            return ScalarValue(_default_to_empty(name, type_, total(name, name, type_)), type_)


def exists(value: Value, scope: Scope, span: Span) -> ScalarValue:
    """Return whether a collection has an element."""
    match value:
        case Array(sql):
            return ScalarValue(f"(size({sql}) > 0)", t.BOOL)
        case GroupedValues():
            count = translate_aggregate("count", value, scope, span)
            return ScalarValue(f"({v.pack(count)} > 0)", t.BOOL)
        case RelationValue():
            frame = scope.frame.child()
            value.add_to(frame)
            return ScalarValue(scope.subquery(f"EXISTS (SELECT 1{frame.text()})", span), t.BOOL)
        case _:
            raise span.error(f"exists: expected a collection, found {describe(value, scope)}. Compare it instead.")
