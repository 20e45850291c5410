"""The items of a program: definitions, includes, and the query that is its view.

| item | meaning |
| --- | --- |
| `v = e`, `store v := e` | a name for e; a relation becomes a common table of the program |
| `type`, `data` | a name for a type; a data type and its constructors |
| `function`, `macro`, `aggregation` | an expression that is inserted where it is called |
| `e`, `incr e`, `dump "path" from e`, `store "path" from e` | a query; the last one is the view |
| `include "file"` | the items of that file |
| `import`, `parser`, `lineage`, `debug` | refused |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deltafold.language.mrql.expressions import translate
from deltafold.language.mrql.program import inputs
from deltafold.language.mrql.program.inputs import Tables
from deltafold.language.mrql.relations import Output, answer, columns_of, list_columns
from deltafold.language.mrql.repeats import RepeatLoop, translate_repeat
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.frames import Frame, FreshNames
from deltafold.language.mrql.rows.scope import DeferredExpression, Definitions, Scope
from deltafold.language.mrql.rows.values import FrameRows, Order, RelationValue, Value
from deltafold.language.mrql.scalars import casts
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.parse import parse
from deltafold.language.mrql.syntax.spans import Span, Text
from deltafold.language.mrql.syntax.tree import Node, names_in

REFUSED_STATEMENTS = {
    "import": "import loads Java code, which a view does not run. Write a function or a macro, "
    "or give a Python function of DataFrames as the query",
    "parser": "parser loads Java code. Land the files as a source instead",
    "lineage": "lineage is not kept for single rows. Use explain, which shows the lineage keys of the states",
    "debug": "debug is not supported. Use explain, and verify",
    "debug all": "debug is not supported. Use explain, and verify",
}
INCLUDE_FOLDER = "which begins at the folder of this file, or of Mrql(…, folder=…) for a text in Python"


def items_of(text: Text, folder: Path | None, around: tuple[Path, ...] = ()) -> Iterator[Node]:
    """Yield the items of a text, and where it includes a file, those of the file. Raises QueryError."""
    for item in parse(text):
        if isinstance(item, T.UnsupportedItem):
            raise item.span.error(f"{REFUSED_STATEMENTS[item.what]}.")
        if not isinstance(item, T.Include):
            yield item
            continue
        path = ((folder or Path()) / item.path).resolve()
        if path in around:
            raise item.span.error(f"{item.path} includes itself. Remove one include.")
        try:
            content = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise item.span.error(
                f"{item.path} does not exist: there is no file {path}. Correct its path, {INCLUDE_FOLDER}."
            ) from None
        except (OSError, UnicodeDecodeError):
            raise item.span.error(f"{item.path} cannot be read as UTF-8 text. Correct the path.") from None
        yield from items_of(Text(item.path, content), path.parent, (*around, path))


def check_unique_names(items: Sequence[Node]) -> None:
    """Raise QueryError for a second definition of a name; one that is included twice counts once."""
    defined = dict[tuple[bool, str], Node]()
    for item in items:
        is_type = isinstance(item, T.TypeDefinition | T.DataDefinition)
        names = [(is_type, str(name))] if (name := getattr(item, "name", None)) else []
        if isinstance(item, T.DataDefinition):
            names += [(False, constructor.name) for constructor in item.alternatives]
        for name in names:
            first = defined.setdefault(name, item)
            if first != item:
                position = f"{first.span.text.name}:{first.span.line}"
                raise item.span.error(f"{name[1]} is defined twice: first at {position}. Rename one of the two.")


def choose_query(items: Sequence[Node], number: int | None, text: Text) -> T.Evaluate:
    """Return the query that is the view: the last one, or that of a number, counted from 1."""
    queries = [item for item in items if isinstance(item, T.Evaluate)]
    if not queries:
        raise Span(text, 0, 0).error("there is no query in the program: definitions alone have no answer. Add one.")
    if number is None:
        return queries[-1]
    if not 1 <= number <= len(queries):
        count = "one query" if len(queries) == 1 else f"{len(queries)} queries"
        raise Span(text, 0, 0).error(f"item={number}: the program has {count}. Choose 1 to {len(queries)}.")
    return queries[number - 1]


def find_used_names(items: Sequence[Node], query: Node) -> set[str]:
    """Return the names that a query uses, also through definitions."""
    by_name: dict[str, list[Node]] = {}
    for item in items:
        if name := getattr(item, "name", None):
            by_name.setdefault(str(name), []).append(item)
    names = set[str]()
    waiting = [query]
    while waiting:
        node = waiting.pop()
        waiting += node.parts
        name = getattr(node, "name", None)
        if isinstance(node, T.Name | T.FunctionCall | T.NamedType | T.ConstructorPattern) and name not in names:
            names.add(str(name))
            waiting += by_name.get(str(name), ())
    return names


@dataclass(frozen=True)
class Translated:
    """A program as Spark SQL; loops: those whose answers it reads, in the order in which they run."""

    loops: tuple[RepeatLoop, ...]
    sql: str


class ProgramTranslation:
    """Translates a program: collects its definitions, its loops, and the common tables that its text begins with."""

    def __init__(self, tables: Tables, arguments: Sequence[str], loops: Mapping[str, Mapping[str, Any]]) -> None:
        self.tables = tables
        self.names = FreshNames()
        self.common = list[str]()
        self.loops = list[RepeatLoop]()
        self._closed_loops = dict[T.Repeat, Value]()
        self.definitions = Definitions(
            source=lambda node, scope: inputs.translate_source(node, None, tables, scope),
            repeat=self._repeat,
            arguments=tuple(arguments),
            loops=loops,
        )
        self.scope = Scope(translate=translate, definitions=self.definitions, names={}, frame=Frame(self.names))

    def translate(self, items: Sequence[Node], query: T.Evaluate) -> Translated:
        """Translate a query among the items. Raises QueryError."""
        needed = find_used_names(items, query)
        for name in sorted(needed):
            if source := self.tables.find(name):
                self.definitions.names[name] = self.tables.rows(source, query.span)
        for item in items:
            if item is query:
                break
            if getattr(item, "name", None) in needed or isinstance(item, T.DataDefinition):
                self._define(item)
        scope = replace(self.scope, frame=Frame(self.names))
        value = self._value(query.value, None, scope)
        final = answer(value, scope, query.span)
        return Translated(tuple(self.loops), self._with_tables(final))

    def _with_tables(self, sql: str) -> str:
        """Return a query that begins with the common tables so far."""
        return f"WITH {', '.join(self.common)} {sql}" if self.common else sql

    def _repeat(self, node: T.Repeat, scope: Scope) -> Value:
        """Translate a loop; one that uses no names around it runs once, however often its answer is used."""
        is_closed = names_in(node).isdisjoint(scope.names)
        if is_closed and node in self._closed_loops:
            return self._closed_loops[node]
        loop, value = translate_repeat(node, scope)
        starts, steps = (tuple(map(self._with_tables, texts)) for texts in (loop.starts, loop.steps))
        self.loops.append(replace(loop, starts=starts, steps=steps))
        if is_closed:
            self._closed_loops[node] = value
        return value

    def _value(self, node: Node, name: str | None, scope: Scope) -> Value:
        """Return the value of an expression; a `source(…)` may be declared under the name of its definition."""
        if isinstance(node, T.FunctionCall) and inputs.is_source(node):
            return inputs.translate_source(node, name, self.tables, scope)
        return scope.value(node)

    def _define(self, item: Node) -> None:
        """Add one definition."""
        definitions = self.definitions
        match item:
            case T.TypeDefinition(name=name, type=type_):
                definitions.types[name] = casts.written_type(type_, self.scope)
            case T.DataDefinition(name=name, alternatives=alternatives):
                self._define_data(name, alternatives)
            case T.FunctionDefinition(name=name):
                definitions.functions[name] = item
            case T.MacroDefinition(name=name):
                definitions.macros[name] = item
            case T.AggregationDefinition(name=name):
                definitions.aggregations[name] = item
            case T.Define(name=name, value=node):
                definitions.names[name] = self._resolve(name, node)
            case _:
                pass

    def _define_data(self, name: str, alternatives: Sequence[T.Parameter]) -> None:
        """Add a data type and its constructors."""
        constructors = tuple(alternative.name for alternative in alternatives)
        for position, (constructor, alternative) in enumerate(zip(constructors, alternatives, strict=True)):
            span = alternative.span
            if constructor in constructors[:position]:
                raise span.error(f"data {name}: it has {constructor} twice. Rename one of the constructors.")
            if name in {node.name for node in descendants(alternative.type) if isinstance(node, T.NamedType)}:
                raise span.error(f"{name} contains itself, which no column can. Use a table of nodes and parents.")
        items = tuple(casts.written_type(alternative.type, self.scope) for alternative in alternatives)
        data = t.Data(name, constructors, items)
        self.definitions.types[name] = data
        self.definitions.constructors |= dict.fromkeys(data.constructors, data)

    def _resolve(self, name: str, node: Node) -> Value | DeferredExpression:
        """Return the value of a definition: a relation becomes a common table, others are translated where used."""
        frame = Frame(self.names)
        scope = replace(self.scope, frame=frame)
        value = self._value(node, name, scope)
        if not isinstance(value, RelationValue):
            return DeferredExpression(node, {})
        if inputs.is_source(node) or isinstance(node, T.Name):
            return value
        output, items, order = list_columns(value.add_to(frame), frame, scope, node.span)
        table = self.names.fresh(name)
        self.common.append(f"{table} AS (SELECT {items}{frame.text()})")
        return RelationValue(lambda reader: _read_table(table, output, order, reader), value.ordered)


def _read_table(table: str, output: Output, order: Sequence[Order], frame: Frame) -> FrameRows:
    """Add the rows of a common table to a frame; each time it is read, its columns have new names."""
    columns = columns_of(output, order)
    fresh = {column: frame.names.fresh(column.strip("_").rstrip("0123456789")) for column in columns}
    items = ", ".join(f"{old} AS {new}" for old, new in fresh.items())
    frame.add(lambda: f"(SELECT {items} FROM {table})", fresh.values())
    leaves = [fresh[column] for column in output.columns[: len(v.leaves(output.value))]]
    return FrameRows(v.rebuild(output.value, leaves), tuple(Order(fresh[k.sql], k.descending) for k in order))


def descendants(node: Node) -> Iterator[Node]:
    """Return a node and all below it."""
    yield node
    for part in node.parts:
        yield from descendants(part)
