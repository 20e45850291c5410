"""What an expression is while it is translated: its parts as expressions over the columns of the current rows.

| value | is |
| --- | --- |
| Scalar | one expression |
| Product | a tuple or a record, part by part; packed into a STRUCT only where a row needs it whole |
| Array | a list or a bag inside a row |
| Relation | rows that are not read yet; `add_to` reads them into a frame |
| Group | after a group by: a value of each row of the group, a bag that is never built where it is only aggregated |
| Function | a lambda |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltafold.algebra.sqltext import quoted
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows.frames import Frame, FromItem
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.syntax.tree import Node, Parameter


@dataclass(frozen=True)
class ScalarValue:
    """An expression that has no parts of its own."""

    sql: str
    type: Type


@dataclass(frozen=True)
class RecordValue:
    """A record, or a tuple (without names); packed: the STRUCT that it is unpacked from, if there is one."""

    names: tuple[str, ...] | None
    parts: tuple[Value, ...]
    positional: bool = False
    packed: str | None = None


@dataclass(frozen=True)
class Array:
    """A list or a bag inside a row; sorted: a bag whose array is in order already."""

    sql: str
    item: Type
    bag: bool
    sorted: bool = False


@dataclass(frozen=True)
class Order:
    """One key of an order: an expression over the rows, and its direction."""

    sql: str
    descending: bool


@dataclass(frozen=True)
class FrameRows:
    """What a relation's rows are in the frame that reads them, and their order if they are a list."""

    value: Value
    order: tuple[Order, ...] = ()


@dataclass(frozen=True)
class RelationValue:
    """Rows; add_to: adds them to a frame. ordered: a list, as `order by` gives it."""

    add_to: Callable[[Frame], FrameRows]
    ordered: bool = False


@dataclass
class Grouped:
    """A group by while the head above it is translated.

    rows: the frame that is grouped; item: the relation that it becomes; aggregates: name → expression.
    """

    rows: Frame
    item: FromItem
    aggregates: dict[str, str]


@dataclass(frozen=True)
class GroupedValues:
    """The values of the rows of a group; condition: those for which it is true; nested: their elements, one by one."""

    value: Value
    grouped: Grouped
    conditions: tuple[str, ...] = ()
    nested: bool = False


@dataclass(frozen=True)
class Function:
    """A lambda and the names around it."""

    parameters: tuple[Parameter, ...]
    result: Node
    body: Node
    names: Mapping[str, Any]


Value = ScalarValue | RecordValue | Array | RelationValue | GroupedValues | Function
NULL = ScalarValue("NULL", t.NOTHING)


def unpack(sql: str, type_: Type, packed: bool = True) -> Value:
    """Return the value of an expression of this type, part by part."""
    match type_:
        case t.Tuple(items):
            return product(sql, None, t.tuple_names(len(items)), items, False, packed)
        case t.Record(names, items, positional):
            return product(sql, names, names, items, positional, packed)
        case t.Collection(bag, item):
            return Array(sql, item, bag, bag and packed)
        case _:
            return ScalarValue(sql, type_)


def product(
    sql: str,
    names: tuple[str, ...] | None,
    fields: Sequence[str],
    items: Sequence[Type],
    positional: bool,
    packed: bool,
) -> RecordValue:
    """Return a STRUCT, part by part."""
    parts = tuple(unpack(f"{sql}.{quoted(f)}", i, packed) for f, i in zip(fields, items, strict=True))
    return RecordValue(names, parts, positional, sql if packed else None)


def type_of(value: Value) -> Type | None:
    """Return the type of a value that is inside a row; None for others."""
    match value:
        case ScalarValue(_, type_):
            return type_
        case RecordValue(names, parts, positional):
            types = tuple(found for found in map(type_of, parts) if found is not None)
            if len(types) < len(parts):
                return None
            return t.Tuple(types) if names is None else t.Record(names, types, positional)
        case Array(_, item, bag):
            return t.Collection(bag, item)
        case _:
            return None


def pack(value: Value) -> str:
    """Return the one expression of a value that is inside a row; equal values are equal expressions' values."""
    match value:
        case ScalarValue(sql):
            return sql
        case Array(sql, _, bag, in_order):
            return f"sort_array({sql})" if bag and not in_order else sql
        case RecordValue(packed=str(sql)):
            return sql
        case RecordValue(names, parts):
            fields = t.tuple_names(len(parts)) if names is None else names
            pairs = [f"{string_literal(name)}, {pack(part)}" for name, part in zip(fields, parts, strict=True)]
            return f"named_struct({', '.join(pairs)})" if pairs else "named_struct('c0', 0)"
        case _:
            raise TypeError(value)


def string_literal(value: str) -> str:
    """Return a string of Spark; `$` is written by its number, since Spark replaces `${…}` even in strings."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return "'" + escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r") + "'"


def leaves(value: Value) -> list[Value]:
    """Return the scalars and arrays of a value."""
    if isinstance(value, RecordValue):
        return [leaf for part in value.parts for leaf in leaves(part)]
    return [value]


def rebuild(value: Value, columns: Sequence[str]) -> Value:
    """Return a value of the same shape over columns that have its leaves."""
    remaining = list(columns)

    def rebuild_part(part: Value) -> Value:
        match part:
            case RecordValue(names, parts, positional):
                return RecordValue(names, tuple(map(rebuild_part, parts)), positional)
            case Array(_, item, bag):
                return Array(remaining.pop(0), item, bag, bag)
            case ScalarValue(_, type_):
                return ScalarValue(remaining.pop(0), type_)
            case _:
                raise TypeError(part)

    return rebuild_part(value)


def hint(value: Value, default: str = "v") -> str:
    """Return a part of a name for a column that holds a value: the last name in its expression."""
    if isinstance(value, ScalarValue | Array):
        last = value.sql.rsplit(".", 1)[-1].strip("`").strip("_").rstrip("0123456789")
        if last.isalnum() and not last[0].isdigit():
            return last
    return default


def convert(value: Value, wanted: Type) -> Value:
    """Return the value with a type that it is unified with."""
    match value, wanted:
        case ScalarValue(sql, type_), _ if type_ != wanted:
            if type_ == t.NOTHING and not t.is_scalar(wanted):
                return unpack(f"CAST({sql} AS {t.sql_type(wanted)})", wanted)
            if sql.isdigit() and wanted in (t.LONG, t.DOUBLE):
                return ScalarValue(f"{sql}{'L' if wanted == t.LONG else 'D'}", wanted)
            return ScalarValue(f"CAST({sql} AS {t.sql_type(wanted)})", wanted)
        case RecordValue(_, parts), t.Tuple(items):
            return convert_parts(value, None, parts, items)
        case RecordValue(_, parts, positional), t.Record(names, items):
            return convert_parts(value, names, parts, items, positional)
        case Array(sql, item, _, in_order), t.Collection(wanted_bag, wanted_item):
            if item == wanted_item:
                return Array(sql, item, wanted_bag, in_order and wanted_bag)
            return Array(recast(sql, item, wanted_item), wanted_item, wanted_bag)
        case _:
            return value


def recast(array: str, item: Type, wanted: Type) -> str:
    """Return an array whose elements have another type."""
    if item == t.NOTHING:
        return f"CAST({array} AS ARRAY<{t.sql_type(wanted)}>)"
    return f"transform({array}, _x -> {pack(convert(unpack('_x', item), wanted))})"


def convert_parts(
    value: RecordValue,
    names: tuple[str, ...] | None,
    parts: Sequence[Value],
    items: Sequence[Type],
    positional: bool = False,
) -> RecordValue:
    """Return a tuple or a record with parts of other types."""
    made = tuple(convert(part, item) for part, item in zip(parts, items, strict=True))
    same = made == tuple(parts) and names == value.names
    return value if same else RecordValue(names, made, positional)
