"""The columns of a program's answer, and of the rows of a loop."""

from __future__ import annotations

from deltafold.algebra.sqltext import quoted
from deltafold.language.mrql.relations import order_by_keys
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.scope import Scope
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import Array, FrameRows, Order, RecordValue, RelationValue, Value
from deltafold.language.mrql.syntax.spans import Span


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
    order = f" ORDER BY {order_by_keys(keys)}" if keys else ""
    return f"SELECT {output_columns(row)}{frame.text()}{order}"


def output_columns(row: Value) -> str:
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
