"""Sources: which declared table a `source(…)` reads, and its rows.

| form | row |
| --- | --- |
| `binary, "path"` | the columns as a record, which a tuple pattern takes by their order |
| `line, "path", "separator", type(…)` | of a table with one column of text: its fields, split, trimmed and cast |
| | of a table with columns: these, by their order, cast; `any` leaves a field out |
| `json, "path"` | of a table with one column of text or VARIANT: its JSON; else the columns as a record |
| `xml, "path"` | of a table with one column of text: its elements; else the columns as a record |

The table of a path is the one that `paths` gives, else the source with the name of the definition, else that with the
name of the file. `stream` is the same relation as `source`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pyspark.sql import types as spark_types

from deltafold.algebra.errors import QueryError
from deltafold.algebra.sqltext import quoted
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.frames import Frame
from deltafold.language.mrql.rows.scope import Scope
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import FrameRows, RecordValue, RelationValue, ScalarValue, Value
from deltafold.language.mrql.scalars import casts
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.spans import Span
from deltafold.language.mrql.syntax.tree import Node

SOURCES = ("source", "stream")
FORMS = ("binary", "line", "json", "xml")


class NoSchemaError(QueryError):
    """A program reads a declared source that has no schema yet; source: its name."""

    def __init__(self, message: str, source: str) -> None:
        super().__init__(message)
        self.source = source


@dataclass(frozen=True)
class Tables:
    """The declared sources that a program may read; schema: that of one; paths: the source of each path."""

    declared: Sequence[str]
    schema: Callable[[str], spark_types.StructType | None]
    paths: Mapping[str, str]

    def find(self, name: str) -> str | None:
        """Return the declared source of a name, whatever its case."""
        return next((each for each in self.declared if each.lower() == name.lower()), None)

    def at(self, path: str, definition: str | None) -> str | None:
        """Return the declared source that a path stands for."""
        if path in self.paths:
            return self.find(self.paths[path])
        names = [name for name in (definition, PurePosixPath(path).stem) if name]
        return next((found for name in names if (found := self.find(name))), None)

    def rows(self, source: str, span: Span) -> RelationValue:
        """Return the rows of a source. Raises QueryError for one without a schema."""
        schema = self.schema(source)
        if schema is None:
            message = span.error(f"source {source} has no data yet. Land its files or create the Delta table first.")
            raise NoSchemaError(str(message), source)
        return RelationValue(lambda frame: FrameRows(read(source, schema, frame)))


def is_source(node: Node) -> bool:
    """Return whether an expression is a source."""
    return isinstance(node, T.FunctionCall) and node.name in SOURCES


def path_of(node: T.FunctionCall, arguments: Sequence[str]) -> str:
    """Return the path of a source: a string, or an element of `args`."""
    match node.arguments[1:2]:
        case (T.Literal(value=str(path)),):
            return path
        case (T.Index(value=T.Name(name="args"), index=T.Literal(value=int(at))),) if at < len(arguments):
            return arguments[at]
        case _:
            raise node.span.error(
                'path of a source: expected a text, or an element of args. Write source(binary, "path").'
            )


def source(node: T.FunctionCall, definition: str | None, tables: Tables, scope: Scope) -> RelationValue:
    """Return the rows of a `source(…)`. Raises QueryError for an unsupported form or an undeclared path."""
    span, (kind, *rest) = node.span, node.arguments or (None,)
    form = kind.name.lower() if isinstance(kind, T.Name) else ""
    if form not in FORMS:
        found = f"{', '.join(FORMS)}, found {form or 'none'}"
        raise span.error(f"source: expected {found}. Land other files, and read them by source(binary, …).")
    path = path_of(node, scope.definitions.arguments)
    name = tables.at(path, definition)
    if name is None:
        known = ", ".join(tables.declared) or "none"
        raise span.error(f"{path} is not a declared source. Name its source under `paths`; there are: {known}.")
    relation = tables.rows(name, span)
    if form in ("json", "xml"):
        if len(rest) != 1:
            raise span.error(f"source({form}, …): expected a path alone. Take the parts of its rows in the query.")
        return documents(relation, form)
    if form == "binary":
        return relation if len(rest) == 1 else cast_source_rows(relation, read_type(rest[1], scope), scope, span)
    if len(rest) != 3 or not (isinstance(rest[1], T.Literal) and isinstance(rest[1].value, str)):
        raise span.error(
            'source(line, …): expected a path, a separator and a type. Write source(line, "path", ",", type(<a: int>)).'
        )
    return lines(relation, rest[1].value, read_type(rest[2], scope), scope, span)


def read_type(node: Node, scope: Scope) -> Type:
    """Return the type of a row in `type(…)`, which may be that of the whole bag."""
    if not isinstance(node, T.TypeValue):
        raise node.span.error("type of a source: expected type(…). Write for example type(<a: int>).")
    found = casts.written_type(node.type, scope)
    return found.item if isinstance(found, t.Collection) else found


def parts_of(type_: Type) -> tuple[tuple[str, ...] | None, tuple[Type, ...]]:
    """Return the fields of a row type; of a scalar one."""
    match type_:
        case t.Record(names, items):
            return names, items
        case t.Tuple(items):
            return None, items
        case _:
            return (), (type_,)


def cast_source_rows(relation: RelationValue, type_: Type, scope: Scope, span: Span) -> RelationValue:
    """Return rows whose columns are taken by their order, and cast."""

    def add_to(frame: Frame) -> FrameRows:
        row = relation.add_to(frame).value
        return FrameRows(shape_row(row, type_, scope.at(frame), span))

    return RelationValue(add_to)


def shape_row(row: Value, type_: Type, scope: Scope, span: Span) -> Value:
    """Return a row of a source as a value of a type; `any` leaves a column out."""
    assert isinstance(row, RecordValue)
    names, items = parts_of(type_)
    if len(row.parts) < len(items):
        raise span.error(
            f"type of a source: it has {len(items)} fields, the source {len(row.parts)} columns. Leave some out."
        )
    kept = [(i, value, item) for i, (value, item) in enumerate(zip(row.parts, items, strict=False)) if item != t.ANY]
    values = tuple(casts.cast(value, item, scope, span) for _, value, item in kept)
    if names == ():
        return values[0]
    return named_row(None if names is None else tuple(names[i] for i, _, _ in kept), values)


def named_row(names: tuple[str, ...] | None, values: tuple[Value, ...]) -> RecordValue:
    """Return a row of a source as a record, which a tuple pattern takes by the order of its fields, or as a tuple."""
    return RecordValue(names, values, names is not None)


def lines(relation: RelationValue, separator: str, type_: Type, scope: Scope, span: Span) -> RelationValue:
    """Lines of text as rows of a type; a table that has columns already gives these."""
    names, items = parts_of(type_)

    def add_to(frame: Frame) -> FrameRows:
        row = relation.add_to(frame).value
        assert isinstance(row, RecordValue)
        if len(row.parts) != 1 or v.type_of(row.parts[0]) != t.STRING or len(items) == 1:
            return FrameRows(shape_row(row, type_, scope.at(frame), span))
        line = v.pack(row.parts[0])
        fields = frame.column(f"split({line}, {v.string_literal(escape_separator(separator))})", "fields")
        found = [
            (i, ScalarValue(parse_field(f"trim({fields}[{i}])", line, item, span), item))
            for i, item in enumerate(items)
            if item != t.ANY
        ]
        kept = None if names is None else tuple(names[i] for i, _ in found)
        return FrameRows(named_row(kept, tuple(value for _, value in found)))

    return RelationValue(add_to)


def documents(relation: RelationValue, form: str) -> RelationValue:
    """Return rows of JSON or XML: a table of one column of texts is read as such, one with columns gives these."""

    def add_to(frame: Frame) -> FrameRows:
        row = relation.add_to(frame).value
        assert isinstance(row, RecordValue)
        match row.parts:
            case (ScalarValue(sql, t.STRING),):
                return FrameRows(
                    ScalarValue(f"parse_json({sql})", t.JSON) if form == "json" else ScalarValue(sql, t.XML)
                )
            case (ScalarValue(_, t.JSON) as value,) if form == "json":
                return FrameRows(value)
            case _:
                return FrameRows(row)

    return RelationValue(add_to)


def escape_separator(separator: str) -> str:
    r"""Return the regular expression of a separator; \E cannot be in one."""
    return "\\Q" + separator + "\\E"


def parse_field(field: str, line: str, type_: Type, span: Span) -> str:
    """Return a field as a value of its type; a field that cannot be read as one is an error that shows its line."""
    if not isinstance(type_, t.Basic):
        raise span.error(f"a field of a line cannot be {t.write_type(type_)}. Use scalar types.")
    if type_ == t.STRING:
        return field
    cast = f"try_cast({field} AS {t.sql_type(type_)})"
    wrong = f"raise_error(concat('MRQL: a field is not {t.write_type(type_)} in the line ', {line}))"
    return f"if({cast} IS NULL, {wrong}, {cast})"


def read(source: str, schema: spark_types.StructType, frame: Frame) -> Value:
    """Add the rows of a source to a frame, each column under a name of its own; a map is a bag of pairs."""
    names, items, values = list[str](), list[str](), list[Value]()
    for field in schema.fields:
        name, column = frame.names.fresh(field.name), quoted(field.name)
        type_ = column_type(field.dataType)
        if isinstance(field.dataType, spark_types.MapType):
            pairs = f"transform(map_entries({column}), _x -> named_struct('c0', _x.key, 'c1', _x.value))"
            type_ = t.Collection(
                True, t.Tuple((column_type(field.dataType.keyType), column_type(field.dataType.valueType)))
            )
            column = f"sort_array({pairs})"
        items.append(f"{column} AS {name}")
        names.append(name)
        values.append(v.unpack(name, type_))
    frame.add(lambda: f"(SELECT {', '.join(items)} FROM {quoted(source)})", names)
    columns = tuple(schema.names)
    return named_row(columns, tuple(values))


def column_type(spark: spark_types.DataType) -> Type:
    """Return the type of a column."""
    match spark:
        case spark_types.StructType(fields=fields):
            return t.Record(tuple(spark.names), tuple(column_type(field.dataType) for field in fields), True)
        case spark_types.ArrayType(elementType=element):
            return t.Collection(False, column_type(element))
        case spark_types.CharType() | spark_types.VarcharType():
            return t.STRING
        case _:
            name = spark.simpleString()
            return t.SPARK.get(name, t.Foreign(name.upper()))
