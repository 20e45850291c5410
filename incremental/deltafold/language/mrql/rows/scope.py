"""Where an expression is translated: the names, the rows and the array elements that it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.collecting import collecting_aggregate, gather
from deltafold.language.mrql.rows.frames import SUBQUERY, Frame, FreshNames, uses_columns
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import Array, GroupedValues, RecordValue, RelationValue, ScalarValue, Value
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.spans import Span
from deltafold.language.mrql.syntax.tree import Node, names_in


@dataclass(frozen=True)
class DeferredExpression:
    """An expression that is translated wherever its name is used; names: those around it."""

    node: Node
    names: Mapping[str, KnownValue]
    calls: tuple[str, ...] = ()


KnownValue = Value | DeferredExpression


@dataclass(kw_only=True)
class Definitions:
    """What the items of a program define.

    source: reads a `source(…)`; repeat: translates a loop; arguments: the values of `args`; loops: the arguments of
    `iterate` for a loop, by its name.
    """

    source: Callable[[T.FunctionCall, Scope], Value]
    repeat: Callable[[T.Repeat, Scope], Value]

    types: dict[str, Type] = field(default_factory=dict[str, Type])
    constructors: dict[str, t.Data] = field(default_factory=dict[str, t.Data])
    functions: dict[str, T.FunctionDefinition] = field(default_factory=dict[str, T.FunctionDefinition])
    macros: dict[str, T.MacroDefinition] = field(default_factory=dict[str, T.MacroDefinition])
    aggregations: dict[str, T.AggregationDefinition] = field(default_factory=dict[str, T.AggregationDefinition])
    names: dict[str, KnownValue] = field(default_factory=dict[str, KnownValue])
    arguments: tuple[str, ...] = ()
    loops: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Where an expression is translated.

    translate: translates an expression; definitions: those of the program; frame: the rows around it, to which columns
    can be added; elements: the names of the array elements around it, which no subquery can refer to; repeated: the
    keys of a group by without a pattern, and their values; calls: the functions whose bodies are around it.
    """

    translate: Callable[[Node, Scope], Value]
    definitions: Definitions
    names: Mapping[str, KnownValue]
    frame: Frame
    elements: frozenset[str] = frozenset()
    repeated: tuple[tuple[Node, Value], ...] = ()
    calls: tuple[str, ...] = ()

    @property
    def fresh(self) -> FreshNames:
        """New names."""
        return self.frame.names

    def value(self, node: Node) -> Value:
        """Return the value of an expression."""
        return self.translate(node, self)

    def binding(self, names: Mapping[str, KnownValue]) -> Scope:
        """Return the scope with more names."""
        hidden = set(names)
        repeated = tuple((node, value) for node, value in self.repeated if hidden.isdisjoint(names_in(node)))
        return replace(self, names={**self.names, **names}, repeated=repeated)

    def at(self, frame: Frame) -> Scope:
        """Return the scope over other rows."""
        return replace(self, frame=frame)

    def within(self, *elements: str) -> Scope:
        """Return the scope within elements of arrays."""
        return replace(self, elements=self.elements | set(elements))

    def subquery(self, sql: str, span: Span) -> str:
        """Return an expression with a subquery; within an array's elements, where Spark allows none, a column of it."""
        sql = self.frame.importing(sql)
        if not self.elements:
            return sql
        if uses_columns(sql, self.elements):
            raise span.error(
                "a query over a relation depends on the elements of a list within a row, which Spark cannot run. "
                "Make the list a generator of the outer select."
            )
        return self.frame.column(sql, "q")

    def inside(self, value: Value, span: Span) -> Value:
        """Return a value as it is inside a row: relations and groups are collected."""
        match value:
            case RecordValue(names, parts, positional, packed):
                return RecordValue(names, tuple(self.inside(part, span) for part in parts), positional, packed)
            case RelationValue():
                return self.collect(value, span)
            case GroupedValues():
                rows = value.grouped.rows
                return gather(value, self.at(rows).inside(value.value, span))
            case ScalarValue() | Array():
                return value
            case _:
                raise span.error("a function cannot be a value of a row. Call it.")

    def pack(self, node: Node) -> tuple[str, Type]:
        """Return the value of an expression as one expression of a row, and its type."""
        value = self.inside(self.value(node), node.span)
        type_ = v.type_of(value)
        assert type_ is not None
        return v.pack(value), type_

    def once(self, value: Value) -> Value:
        """Return a value that is used more than once: its subqueries become columns, where that is possible."""
        if self.elements:
            return value
        match value:
            case RecordValue(names, parts, positional):
                return RecordValue(names, tuple(map(self.once, parts)), positional)
            case ScalarValue(sql, type_) if SUBQUERY in sql:
                return ScalarValue(self.frame.column(sql, v.hint(value)), type_)
            case Array(sql, item, bag) if SUBQUERY in sql:
                return Array(self.frame.column(v.pack(value), v.hint(value)), item, bag, bag)
            case _:
                return value

    def collect(self, relation: RelationValue, span: Span) -> Array:
        """Return the rows of a relation as an array: a bag in order, or a list by its order."""
        frame = self.frame.child()
        added = relation.add_to(frame)
        value = replace(self, frame=frame, elements=frozenset[str]()).inside(added.value, span)
        order = tuple(v.Order(frame.local(key.sql, "k"), key.descending) for key in added.order)
        item, sql = collecting_aggregate(value, order, frame.local(v.pack(value), v.hint(value)), self.fresh)
        array = f"coalesce((SELECT {sql}{frame.text()}), CAST(array() AS ARRAY<{t.sql_type(item)}>))"
        column = self.frame.column(self.subquery(array, span), v.hint(value, "bag"))  # no function of elements has one
        is_bag = not relation.ordered
        return Array(column, item, bag=is_bag, sorted=is_bag)

    def condition(self, node: Node) -> str:
        """Return a condition as an expression. Raises QueryError unless it is a bool."""
        value = self.value(node)
        if isinstance(value, ScalarValue) and value.type in (t.BOOL, t.NOTHING):
            return value.sql
        raise node.span.error(f"condition: expected a bool, found {describe(value, self)}. Compare it with something.")


def describe(value: Value, scope: Scope) -> str:
    """Return the type of a value as MRQL writes it, for errors."""
    if isinstance(value, v.Function):
        return "a function"
    if isinstance(value, RelationValue):
        value = value.add_to(scope.frame.child()).value
        inner = describe(value, scope)
        return f"{{{inner}}}"
    if isinstance(value, GroupedValues):
        return f"{{{describe(value.value, scope)}}}"
    if isinstance(value, RecordValue):
        parts = [describe(part, scope) for part in value.parts]
        if value.names is None:
            return f"({', '.join(parts)})"
        return f"<{', '.join(f'{n}: {p}' for n, p in zip(value.names, parts, strict=True))}>"
    type_ = v.type_of(value)
    return t.write_type(type_) if type_ is not None else "nothing"
