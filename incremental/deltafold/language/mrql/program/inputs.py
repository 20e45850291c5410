"""Sources: which declared table a `source(…)` reads, and its rows.

| form | row, where the table has one column of text | row, where it has other columns |
| --- | --- | --- |
| `binary, "path"` | a record of the columns | the same |
| `line, "path", "separator", type(…)` | the fields of the line: split, trimmed and cast | the columns by order, cast |
| `json, "path"` | the text (or VARIANT) as JSON | a record of the columns |
| `xml, "path"` | the text as an element | a record of the columns |

A tuple pattern takes the columns of a record by their order; the type `any` leaves a field out. The table of a path is
the one in `paths`, else the source with the name of the definition, else the source with the name of the file. `stream`
is the same as `source`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pyspark.sql import types as spark_types

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
from deltafold.language.query_language import NoSchemaError

SOURCES = ("source", "stream")
FORMS = ("binary", "line", "json", "xml")


@dataclass(frozen=True)
class Tables:
    """The declared sources that a program may read.

    schema: returns that of a source, None if it has no data yet; paths: the source for the path of a `source(…)`.
    """

    declared: Sequence[str]
    schema: Callable[[str], spark_types.StructType | None]
    paths: Mapping[str, str]

    def find(self, name: str) -> str | None:
        """Return the declared source of a name, whatever its case."""
        return next((source for source in self.declared if source.lower() == name.lower()), None)

    def at(self, path: str, definition: str | None) -> str | None:
        """Return the declared source for a path."""
        if path in self.paths:
            return self.find(self.paths[path])
        return (definition and self.find(definition)) or self.find(PurePosixPath(path).stem)

    def rows(self, source: str, span: Span) -> RelationValue:
        """Return the rows of a source. Raises QueryError for one without a schema."""
        schema = self.schema(source)
        if schema is None:
            message = span.error(f"source {source} has no data yet. Land its files or create the Delta table first.")
            raise NoSchemaError(str(message), source)
        return RelationValue(lambda frame: FrameRows(_read_source(source, schema, frame)))


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


def translate_source(node: T.FunctionCall, definition: str | None, tables: Tables, scope: Scope) -> RelationValue:
    """Return the rows of a `source(…)`. Raises QueryError for an unsupported form or an undeclared path."""
    span = node.span
    kind, *rest = node.arguments or (None,)
    form = kind.name.lower() if isinstance(kind, T.Name) else ""
    if form not in FORMS:
        forms = f"{', '.join(FORMS)}, found {form or 'none'}"
        raise span.error(f"source: expected {forms}. Land other files, and read them by source(binary, …).")
    path = path_of(node, scope.definitions.arguments)
    name = tables.at(path, definition)
    if name is None:
        declared = ", ".join(tables.declared) or "none"
        raise span.error(f"{path} is not a declared source. Name its source under `paths`; there are: {declared}.")
    relation = tables.rows(name, span)
    if form in ("json", "xml"):
        if len(rest) != 1:
            raise span.error(f"source({form}, …): expected a path alone. Take the parts of its rows in the query.")
        return _read_documents(relation, form)
    if form == "binary":
        return relation if len(rest) == 1 else _cast_source_rows(relation, _read_type(rest[1], scope), scope, span)
    if len(rest) != 3 or not (isinstance(rest[1], T.Literal) and isinstance(rest[1].value, str)):
        raise span.error(
            'source(line, …): expected a path, a separator and a type. Write source(line, "path", ",", type(<a: int>)).'
        )
    return _read_lines(relation, rest[1].value, _read_type(rest[2], scope), scope, span)


def _read_type(node: Node, scope: Scope) -> Type:
    """Return the type of a row in `type(…)`, where the type of the whole bag may be written too."""
    if not isinstance(node, T.TypeValue):
        raise node.span.error("type of a source: expected type(…). Write for example type(<a: int>).")
    type_ = casts.written_type(node.type, scope)
    return type_.item if isinstance(type_, t.Collection) else type_


def _parts_of(type_: Type) -> tuple[tuple[str, ...] | None, tuple[Type, ...]]:
    """Return the names and types of the fields of a row: no names for a tuple (None) and for a scalar (empty)."""
    match type_:
        case t.Record(names, items):
            return names, items
        case t.Tuple(items):
            return None, items
        case _:
            return (), (type_,)


def _cast_source_rows(relation: RelationValue, type_: Type, scope: Scope, span: Span) -> RelationValue:
    """Return rows whose columns are taken by their order, and cast."""

    def add_to(frame: Frame) -> FrameRows:
        row = relation.add_to(frame).value
        return FrameRows(_shape_row(row, type_, scope.at(frame), span))

    return RelationValue(add_to)


def _shape_row(row: Value, type_: Type, scope: Scope, span: Span) -> Value:
    """Return a row of a source as a value of a type; `any` leaves a column out."""
    assert isinstance(row, RecordValue)
    names, items = _parts_of(type_)
    if len(row.parts) < len(items):
        raise span.error(
            f"type of a source: it has {len(items)} fields, the source {len(row.parts)} columns. Leave some out."
        )
    kept = [(i, value, item) for i, (value, item) in enumerate(zip(row.parts, items, strict=False)) if item != t.ANY]
    values = tuple(casts.cast(value, item, scope, span) for _, value, item in kept)
    if names == ():
        return values[0]
    return _source_row(names and tuple(names[i] for i, _, _ in kept), values)


def _source_row(names: tuple[str, ...] | None, values: tuple[Value, ...]) -> RecordValue:
    """Return a row of a source as a record, which a tuple pattern takes by the order of its fields, or as a tuple."""
    return RecordValue(names, values, positional=names is not None)


def _read_lines(relation: RelationValue, separator: str, type_: Type, scope: Scope, span: Span) -> RelationValue:
    """Return lines of text as rows of a type; of a table that has columns, these."""
    names, items = _parts_of(type_)

    def add_to(frame: Frame) -> FrameRows:
        row = relation.add_to(frame).value
        assert isinstance(row, RecordValue)
        if len(row.parts) != 1 or v.type_of(row.parts[0]) != t.STRING or len(items) == 1:
            return FrameRows(_shape_row(row, type_, scope.at(frame), span))
        line = v.pack(row.parts[0])
        fields = frame.column(f"split({line}, {v.string_literal(_escape_separator(separator))})", "fields")
        kept = [(i, item) for i, item in enumerate(items) if item != t.ANY]
        values = tuple(ScalarValue(_parse_field(f"trim({fields}[{i}])", line, item, span), item) for i, item in kept)
        return FrameRows(_source_row(names and tuple(names[i] for i, _ in kept), values))

    return RelationValue(add_to)


def _read_documents(relation: RelationValue, form: str) -> RelationValue:
    """Return rows of JSON or XML: a table of one column of text is parsed, other tables have their columns."""

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


def _escape_separator(separator: str) -> str:
    r"""Return the regular expression of a separator; \E cannot be in one."""
    return "\\Q" + separator + "\\E"


def _parse_field(field: str, line: str, type_: Type, span: Span) -> str:
    """Return a field as a value of its type; Spark raises an error with the line for one that cannot be converted."""
    if not isinstance(type_, t.Basic):
        raise span.error(f"a field of a line cannot be {t.write_type(type_)}. Use scalar types.")
    if type_ == t.STRING:
        return field
    cast = f"try_cast({field} AS {t.sql_type(type_)})"
    error = f"raise_error(concat('MRQL: a field is not {t.write_type(type_)} in the line ', {line}))"
    return f"if({cast} IS NULL, {error}, {cast})"


def _read_source(source: str, schema: spark_types.StructType, frame: Frame) -> Value:
    """Add the rows of a source to a frame, each column under a new name; a map is a bag of pairs."""
    items = list[str]()
    values = dict[str, Value]()
    for field in schema.fields:
        name = frame.names.fresh(field.name)
        column = quoted(field.name)
        type_ = _column_type(field.dataType)
        if isinstance(field.dataType, spark_types.MapType):
            pairs = f"transform(map_entries({column}), _x -> named_struct('c0', _x.key, 'c1', _x.value))"
            pair = t.Tuple((_column_type(field.dataType.keyType), _column_type(field.dataType.valueType)))
            type_ = t.Collection(bag=True, item=pair)
            column = f"sort_array({pairs})"
        items.append(f"{column} AS {name}")
        values[name] = v.unpack(name, type_)
    frame.add(lambda: f"(SELECT {', '.join(items)} FROM {quoted(source)})", values)
    return _source_row(tuple(schema.names), tuple(values.values()))


def _column_type(spark: spark_types.DataType) -> Type:
    """Return the type of a column."""
    match spark:
        case spark_types.StructType(fields=fields):
            items = tuple(_column_type(field.dataType) for field in fields)
            return t.Record(tuple(spark.names), items, positional=True)
        case spark_types.ArrayType(elementType=element):
            return t.Collection(bag=False, item=_column_type(element))
        case spark_types.CharType() | spark_types.VarcharType():
            return t.STRING
        case _:
            name = spark.simpleString()
            return t.SPARK.get(name, t.Foreign(name.upper()))
