"""The items of a program: definitions, queries, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.language.mrql.syntax.tree import Node, Parameter


@dataclass(frozen=True)
class Evaluate(Node):
    """A query: `e`, `incr e`, `dump "path" from e` or `store "path" from e`."""

    value: Node


@dataclass(frozen=True)
class Define(Node):
    """`name = value`, or `store name := value`."""

    name: str
    value: Node


@dataclass(frozen=True)
class TypeDefinition(Node):
    """`type name = type`."""

    name: str
    type: Node


@dataclass(frozen=True)
class DataDefinition(Node):
    """`data name = alternatives`."""

    name: str
    alternatives: tuple[Parameter, ...]


@dataclass(frozen=True)
class FunctionDefinition(Node):
    """`function name(parameters): result { body }`."""

    name: str
    parameters: tuple[Parameter, ...]
    result: Node
    body: Node


@dataclass(frozen=True)
class MacroDefinition(Node):
    """`macro name(parameters) { body }`."""

    name: str
    parameters: tuple[str, ...]
    body: Node


@dataclass(frozen=True)
class AggregationDefinition(Node):
    """`aggregation name(plus, zero, unit): type`."""

    name: str
    plus: Node
    zero: Node
    unit: Node | None
    type: Node


@dataclass(frozen=True)
class Include(Node):
    """`include "path"`."""

    path: str


@dataclass(frozen=True)
class UnsupportedItem(Node):
    """An item that is refused when the program is read; what: its keyword."""

    what: str
