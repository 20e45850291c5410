"""The value of an expression of MRQL, as Spark SQL over the columns of the rows around it.

| value | of |
| --- | --- |
| `ScalarValue` | a scalar: one expression of Spark |
| `RecordValue` | a tuple or a record: its parts; `pack` makes a STRUCT of them where a row needs one expression |
| `Array` | a list or a bag inside a row |
| `RelationValue` | a list or a bag of rows; `add_to` reads them into a frame |
| `GroupedValues` | a variable after a group by: one value for each row; collected only where it has to be |
| `Function` | a lambda |
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
    """A value without parts."""

    sql: str
    type: Type


@dataclass(frozen=True)
class RecordValue:
    """A record, or a tuple (without names).

    positional: a row of a source, whose parts a tuple pattern may take; packed: the STRUCT of which these are parts.
    """

    names: tuple[str, ...] | None
    parts: tuple[Value, ...]
    positional: bool = False
    packed: str | None = None


@dataclass(frozen=True)
class Array:
    """A list or a bag inside a row; sorted: a bag whose array is sorted already."""

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
    """The rows of a relation in the frame that reads them: their value, and their order if they are a list."""

    value: Value
    order: tuple[Order, ...] = ()


@dataclass(frozen=True)
class RelationValue:
    """Rows; add_to: adds them to a frame. ordered: a list, as `order by` gives it."""

    add_to: Callable[[Frame], FrameRows]
    ordered: bool = False


@dataclass
class Grouped:
    """A group by, to which the translation of the head above it adds aggregates.

    rows: the frame that is grouped; item: the relation that it becomes; aggregates: column → expression.
    """

    rows: Frame
    item: FromItem
    aggregates: dict[str, str]


@dataclass(frozen=True)
class GroupedValues:
    """The values of the rows of a group that meet conditions; nested: the values are arrays, whose elements count."""

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


def unpack(sql: str, type_: Type) -> Value:
    """Return the value of an expression of this type, part by part."""

    def unpack_fields(names: Sequence[str], items: Sequence[Type]) -> tuple[Value, ...]:
        return tuple(unpack(f"{sql}.{quoted(name)}", item) for name, item in zip(names, items, strict=True))

    match type_:
        case t.Tuple(items):
            return RecordValue(None, unpack_fields(t.tuple_names(len(items)), items), packed=sql)
        case t.Record(names, items, positional):
            return RecordValue(names, unpack_fields(names, items), positional, sql)
        case t.Collection(bag, item):
            return Array(sql, item, bag, sorted=bag)
        case _:
            return ScalarValue(sql, type_)


def type_of(value: Value) -> Type | None:
    """Return the type of a value that is inside a row; None for others."""
    match value:
        case ScalarValue(_, type_):
            return type_
        case RecordValue(names, parts, positional):
            types = tuple(type_ for type_ in map(type_of, parts) if type_ is not None)
            if len(types) < len(parts):
                return None
            return t.Tuple(types) if names is None else t.Record(names, types, positional)
        case Array(_, item, bag):
            return t.Collection(bag, item)
        case _:
            return None


def pack(value: Value) -> str:
    """Return one expression for a value that is inside a row; those of equal values are equal in Spark."""
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
    """Return a string of Spark; `$` is escaped, since Spark substitutes `${…}` even in strings."""
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
        case RecordValue(), t.Tuple(items):
            return _convert_parts(value, None, items, positional=False)
        case RecordValue(), t.Record(names, items):
            return _convert_parts(value, names, items, positional=value.positional)
        case Array(sql, item, _, in_order), t.Collection(wanted_bag, wanted_item):
            if item == wanted_item:
                return Array(sql, item, wanted_bag, in_order and wanted_bag)
            return Array(_convert_elements(sql, item, wanted_item), wanted_item, wanted_bag)
        case _:
            return value


def _convert_elements(array: str, item: Type, wanted: Type) -> str:
    """Return an array whose elements have another type."""
    if item == t.NOTHING:
        return f"CAST({array} AS ARRAY<{t.sql_type(wanted)}>)"
    return f"transform({array}, _x -> {pack(convert(unpack('_x', item), wanted))})"


def _convert_parts(
    value: RecordValue, names: tuple[str, ...] | None, items: Sequence[Type], *, positional: bool
) -> RecordValue:
    """Return a tuple or a record with parts of other types."""
    parts = tuple(convert(part, item) for part, item in zip(value.parts, items, strict=True))
    same = parts == value.parts and names == value.names
    return value if same else RecordValue(names, parts, positional)
