"""Relations: rows that are read into a frame, closed into a SELECT of their own, and combined.

A union is UNION ALL. `intersect` and `except` are those of bags, by counts: INTERSECT ALL and EXCEPT ALL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltafold.algebra.sqltext import quoted
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.frames import Frame
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import (
    Array,
    FrameRows,
    GroupedValues,
    Order,
    RecordValue,
    RelationValue,
    ScalarValue,
    Value,
)
from deltafold.language.mrql.scalars import casts
from deltafold.language.mrql.syntax.spans import Span

OPERATIONS = {"union": "UNION ALL", "intersect": "INTERSECT ALL", "except": "EXCEPT ALL"}


@dataclass(frozen=True)
class Output:
    """The columns of a SELECT: their expressions, their names, and the value over these."""

    items: tuple[str, ...]
    columns: tuple[str, ...]
    value: Value

    def __str__(self) -> str:
        pairs = zip(self.items, self.columns, strict=True)
        return ", ".join(item if item == name else f"{item} AS {name}" for item, name in pairs)


def output(value: Value, frame: Frame, scope: Scope, span: Span) -> Output:
    """Return the columns that hold a value; a column that is one already keeps its name."""
    row = scope.at(frame).inside(value, span)
    items = list[str]()
    columns = list[str]()
    for leaf in v.leaves(row):
        sql = v.pack(leaf)
        items.append(sql)
        columns.append(sql if sql in frame.columns and sql not in columns else frame.names.fresh(v.hint(leaf)))
    shape = v.rebuild(row, columns)
    if not items:
        items.append("0")
        columns.append(frame.names.fresh("u"))
    return Output(tuple(items), tuple(columns), shape)


def lift(value: Value, scope: Scope, span: Span) -> RelationValue:
    """Return a collection as a relation. Raises QueryError for another value."""
    match value:
        case RelationValue():
            return value
        case GroupedValues():
            return lift(scope.inside(value, span), scope, span)
        case ScalarValue(sql, t.JSON):
            return lift(Array(f"CAST({sql} AS ARRAY<VARIANT>)", t.JSON, bag=False), scope, span)
        case Array():
            return RelationValue(lambda frame: FrameRows(explode(value, frame)), ordered=not value.bag)
        case _:
            raise span.error(f"expected a collection, found {describe(value, scope)}. Write {{…}} around one value.")


def explode(array: Array, frame: Frame) -> Value:
    """Return the elements of an array as rows of a frame."""
    return v.unpack(frame.explode(array.sql, v.hint(array, "x")), array.item)


def keep_rows(relation: RelationValue, condition: str) -> RelationValue:
    """Return the rows of a relation, where a condition of the rows around it is true."""

    def add_to(frame: Frame) -> FrameRows:
        added = relation.add_to(frame)
        frame.filter(condition)
        return added

    return RelationValue(add_to, relation.ordered)


def distinct(relation: RelationValue, scope: Scope, span: Span) -> RelationValue:
    """Return the rows of a relation, each once; of a list, the rows with the keys of its order."""

    def add_to(frame: Frame) -> FrameRows:
        inner = frame.child()
        made, shown, order = list_columns(relation.add_to(inner), inner, scope, span)
        frame.add(lambda: f"(SELECT DISTINCT {shown}{inner.text()})", columns_of(made, order))
        return FrameRows(made.value, order)

    return RelationValue(add_to, relation.ordered)


def first_rows(relation: RelationValue, limit: str, scope: Scope, span: Span) -> RelationValue:
    """Return the first rows of a list; ties are ordered by all columns."""

    def add_to(frame: Frame) -> FrameRows:
        inner = frame.child()
        made, shown, order = list_columns(relation.add_to(inner), inner, scope, span)
        sorting = _order_by_keys((*order, *(Order(column, descending=False) for column in made.columns)))
        frame.add(
            lambda: f"(SELECT * FROM (SELECT {shown}{inner.text()}) ORDER BY {sorting} LIMIT {limit})",
            columns_of(made, order),
        )
        return FrameRows(made.value, order)

    return RelationValue(add_to, ordered=True)


def list_columns(added: FrameRows, inner: Frame, scope: Scope, span: Span) -> tuple[Output, str, tuple[Order, ...]]:
    """Return the columns of rows and of the keys of their order: the former, the text of all, the keys."""
    made = output(added.value, inner, scope, span)
    texts = [str(made)]
    order = list[Order]()
    columns = dict(zip(made.items, made.columns, strict=True))
    for key in added.order:
        name = columns.get(key.sql) or inner.names.fresh("k")
        if key.sql not in columns:
            texts.append(f"{inner.local(key.sql, 'k')} AS {name}")
        order.append(Order(name, key.descending))
    return made, ", ".join(texts), tuple(order)


def columns_of(made: Output, order: Sequence[Order]) -> tuple[str, ...]:
    """Return the names of the columns of rows and of their order, each once."""
    return tuple(dict.fromkeys((*made.columns, *(key.sql for key in order))))


def _order_by_keys(order: Sequence[Order]) -> str:
    """Return the keys of ORDER BY."""
    return ", ".join(f"{key.sql} DESC" if key.descending else key.sql for key in order)


def union(relations: Sequence[RelationValue], scope: Scope, span: Span) -> RelationValue:
    """Return the rows of several relations."""
    return combine_relations("union", relations, scope, span)


def combine_relations(operation: str, relations: Sequence[RelationValue], scope: Scope, span: Span) -> RelationValue:
    """Return a union, an intersection or a difference of relations, whose rows get one type."""

    def add_to(frame: Frame) -> FrameRows:
        frames = [frame.child() for _ in relations]
        values = [
            scope.at(inner).inside(relation.add_to(inner).value, span)
            for relation, inner in zip(relations, frames, strict=True)
        ]
        same = casts.unify_values(values, scope, span, f"the sides of {operation}")
        sides = [output(value, inner, scope, span) for value, inner in zip(same, frames, strict=True)]
        columns = [frame.names.fresh(v.hint(leaf)) for leaf in v.leaves(same[0])]
        row = v.rebuild(same[0], columns)
        columns = columns or [frame.names.fresh("u")]
        # on every side, since Spark 4.2 fails if one column occurs twice in a side of EXCEPT ALL
        texts = [", ".join(map(" AS ".join, zip(side.items, columns, strict=True))) for side in sides]

        def text() -> str:
            selects = [f"SELECT {items}{inner.text()}" for items, inner in zip(texts, frames, strict=True)]
            return f"({f' {OPERATIONS[operation]} '.join(selects)})"

        frame.add(text, columns)
        return FrameRows(row)

    return RelationValue(add_to)


def answer(value: Value, scope: Scope, span: Span) -> str:
    """Return the SELECT of an answer: a relation's rows by the names of their columns, any other value as one row."""
    if isinstance(value, Array):
        array = value
        value = RelationValue(lambda frame: FrameRows(v.unpack(frame.explode(array.sql, "x"), array.item)))
    if not isinstance(value, RelationValue):
        packed = v.pack(scope.inside(value, span))
        return f"SELECT {packed} AS `value`{scope.frame.text()}"
    frame = scope.frame
    added = value.add_to(frame)
    row = scope.at(frame).inside(added.value, span)
    keys = [Order(frame.local(key.sql, "k"), key.descending) for key in added.order]
    order = f" ORDER BY {_order_by_keys(keys)}" if keys else ""
    return f"SELECT {_output_columns(row)}{frame.text()}{order}"


def _output_columns(row: Value) -> str:
    """Return the columns of the answer: of a record by its names, of a tuple c0, c1, …, else `value`."""
    type_ = v.type_of(row)
    assert type_ is not None
    if not isinstance(row, RecordValue) or not row.parts:
        return f"{v.pack(row)} AS `value`"
    return ", ".join(
        f"{v.pack(part)} AS {quoted(n)}" for n, part in zip(output_column_names(type_), row.parts, strict=True)
    )


def output_column_names(type_: Type) -> tuple[str, ...]:
    """Return the names of the columns of rows of a type."""
    match type_:
        case t.Record(names):
            return names
        case t.Tuple(items) if items:
            return t.tuple_names(len(items))
        case _:
            return ("value",)
