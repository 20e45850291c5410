"""`c[i]`, `c[i:j]`, `elem(c)` and ranges.

Of a list an index is a position, counted from 0, and one that is out of range is an error; of a bag of pairs it is a
key, whose value is NULL where no pair has it, and an error where several have. `l[i:j]` has both ends, as far as the
list goes; an i that is negative or greater than j is an error.
"""

from __future__ import annotations

from deltafold.language.mrql import relations
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.frames import FRAME_COLUMN, SUBQUERY, Frame
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import (
    Array,
    FrameRows,
    GroupedValues,
    RecordValue,
    RelationValue,
    ScalarValue,
    Value,
)
from deltafold.language.mrql.scalars import operators
from deltafold.language.mrql.syntax.spans import Span

SEVERAL = "raise_error('MRQL: several pairs of a bag have the key that is looked up')"
INDEX_OUT_OF_RANGE = "raise_error('MRQL: the index is out of the range of its list')"
WRONG_RANGE = "raise_error('MRQL: the first index of a part of a list is negative, or greater than the last one')"


def index_value(value: Value, index: Value, scope: Scope, span: Span) -> Value:
    """Translate `value[index]`."""
    if isinstance(value, GroupedValues):
        value = scope.inside(value, span)
    if isinstance(value, ScalarValue) and value.type == t.JSON:
        value = Array(f"CAST({value.sql} AS ARRAY<VARIANT>)", t.JSON, bag=False)
    if isinstance(value, Array):
        if value.bag and not t.is_pair(value.item):
            raise span.error(
                f"index: expected a list or a bag of pairs, found {describe(value, scope)}. Order it first."
            )
        return _in_map(value, index, scope, span) if value.bag else _in_list(value, _position(index, scope, span))
    if isinstance(value, RelationValue):
        if value.ordered:
            return _at_position(value, _position(index, scope, span), scope, span)
        return _look_up_key(value, index, scope, span)
    raise span.error(f"index: expected a list or a bag of pairs, found {describe(value, scope)}. Use `#` for a tuple.")


def _position(index: Value, scope: Scope, span: Span) -> str:
    """Return an index as an INT."""
    if isinstance(index, ScalarValue) and t.is_integer(index.type):
        return index.sql if index.type == t.INT else f"CAST({index.sql} AS INT)"
    raise span.error(f"index of a list: expected an int, found {describe(index, scope)}. Cast it with `as int`.")


def _in_list(array: Array, at: str) -> Value:
    """Return an element of a list; a position out of range is an error, where Spark's `get` gives NULL."""
    sql = v.pack(array)
    below = "" if at.isdigit() else f"{at} < 0 OR "
    checked = f"if({below}{at} >= size({sql}), {INDEX_OUT_OF_RANGE}, {at})"
    return v.unpack(f"get({sql}, {checked})", array.item)


def _in_map(array: Array, key: Value, scope: Scope, span: Span) -> Value:
    """Return the value of a key in a bag of pairs within a row."""
    pair = scope.fresh.fresh("x")
    key = scope.once(key)
    both = v.unpack(pair, array.item)
    assert isinstance(both, RecordValue)
    condition = operators.equal(both.parts[0], key, scope.within(pair), span)
    matching = f"filter({array.sql}, {pair} -> {condition})"
    one = f"transform({matching}, {pair} -> if(size({matching}) > 1, {SEVERAL}, {v.pack(both.parts[1])}))"
    type_ = v.type_of(both.parts[1])
    assert type_ is not None
    return v.unpack(f"get({one}, 0)", type_)


def _look_up_key(relation: RelationValue, key: Value, scope: Scope, span: Span) -> Value:
    """Return the value of a key in a relation of pairs."""
    frame = scope.frame.child()
    pair = relation.add_to(frame).value
    if not (isinstance(pair, RecordValue) and len(pair.parts) == 2):
        shown = describe(relation, scope)
        raise span.error(f"index: expected a list or a bag of pairs, found {shown}. Order it first.")
    frame.filter(operators.equal(pair.parts[0], key, scope.at(frame), span))
    sql, type_ = _pack_rows(pair.parts[1], frame, scope, span)
    pairs = f"named_struct('n', count(1), 'v', max(named_struct('v', {sql})))"
    shared = _share_subquery(f"{SUBQUERY}{pairs}{frame.text()})", scope, span)
    return v.unpack(f"if({shared}.n > 1, {SEVERAL}, {shared}.v).v", type_)


def _pack_rows(value: Value, frame: Frame, scope: Scope, span: Span) -> tuple[str, Type]:
    """Return a value of the rows of a frame as one expression over its columns, and its type."""
    inside = scope.at(frame).inside(value, span)
    type_ = v.type_of(inside)
    assert type_ is not None
    return frame.local(v.pack(inside), v.hint(inside)), type_


def _at_position(relation: RelationValue, at: str, scope: Scope, span: Span) -> Value:
    """Return an element of an ordered relation: the first is a mergeable `min`; for others the rows are collected."""
    if at != "0":
        return _in_list(scope.collect(relation, span), at)
    frame = scope.frame.child()
    added = relation.add_to(frame)
    if not added.order or any(key.descending for key in added.order):
        return _in_list(scope.collect(relation, span), at)
    sql, type_ = _pack_rows(added.value, frame, scope, span)
    keys = [f"'k{i}', {frame.local(key.sql, 'k')}" for i, key in enumerate(added.order)]
    least = f"min(named_struct({', '.join(keys)}, 'v', {sql}))"
    shared = _share_subquery(f"{SUBQUERY}{least}{frame.text()})", scope, span)
    return v.unpack(f"if({shared} IS NULL, {INDEX_OUT_OF_RANGE}, {shared}).v", type_)


def _share_subquery(sql: str, scope: Scope, span: Span) -> str:
    """Return a subquery whose value is used more than once: as a column, where that is possible.

    Callers raise errors about the value outside of it, so that a branch that is not taken does not fail.
    """
    subquery = scope.subquery(sql, span)
    return subquery if scope.elements else scope.frame.column(subquery, "q")


def slice_value(value: Value, first: Value, last: Value, scope: Scope, span: Span) -> Value:
    """Translate `value[first:last]`: the elements of a list from first to last, both included."""
    if isinstance(value, RelationValue) and value.ordered:
        value = scope.collect(value, span)
    if not (isinstance(value, Array) and not value.bag):
        raise span.error(f"part of a list: expected a list, found {describe(value, scope)}. Order it first.")
    sql = v.pack(value)
    a = _position(first, scope, span)
    b = _position(last, scope, span)
    begin = f"if({a} < 0 OR {b} < {a}, {WRONG_RANGE}, {a})"
    length = f"if({b} >= size({sql}), size({sql}), {b} - {a} + 1)"  # Spark's slice ends with the array
    return Array(f"slice({sql}, {begin} + 1, {length})", value.item, bag=False)


def translate_elem(value: Value, scope: Scope, span: Span) -> Value:
    """Translate `elem(c)`: the only element of a collection; of none or several it is an error."""
    array = scope.inside(value, span)
    if not isinstance(array, Array):
        raise span.error(f"elem: expected a collection, found {describe(value, scope)}. Use the value itself.")
    sql = v.pack(array)
    return v.unpack(f"get({sql}, if(size({sql}) = 1, 0, raise_error('MRQL: elem of none or of several')))", array.item)


def translate_range(first: Value, last: Value, scope: Scope, span: Span, *, relation: bool) -> Value:
    """Translate `first .. last`, a list, or `first ... last`, a relation: the numbers from first to last."""
    for value in (first, last):
        if not (isinstance(value, ScalarValue) and t.is_integer(value.type)):
            raise span.error(f"range: expected integers, found {describe(value, scope)}. Cast it with `as int`.")
    type_ = t.common_type(*(value.type for value in (first, last) if isinstance(value, ScalarValue)))
    assert type_ is not None
    a, b = (v.pack(v.convert(value, type_)) for value in (first, last))
    if relation and not any(SUBQUERY in sql or FRAME_COLUMN.search(sql) for sql in (a, b)):
        return RelationValue(lambda frame: _add_range(frame, a, b, type_), ordered=True)
    array = Array(f"if({b} < {a}, CAST(array() AS ARRAY<{t.sql_type(type_)}>), sequence({a}, {b}))", type_, bag=False)
    return relations.lift(array, scope, span) if relation else array


def _add_range(frame: Frame, first: str, last: str, type_: Type) -> FrameRows:
    """Add the rows of a range of constants to a frame."""
    name = frame.names.fresh("i")
    rows = f"(SELECT CAST(id AS {t.sql_type(type_)}) AS {name} FROM range({first}, {last} + 1L))"
    frame.add(lambda: rows, (name,))
    return FrameRows(ScalarValue(name, type_), (v.Order(name, descending=False),))
