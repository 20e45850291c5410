"""The tree: one frozen dataclass for each form of the grammar.

Two parts are equal if they are written alike; where they are in the text (`span`) does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, cast

from deltafold.language.mrql.syntax.spans import Span


@dataclass(frozen=True)
class Node:
    """A part of the tree, and where it is in the text."""

    span: Span = field(compare=False, repr=False)

    @property
    def parts(self) -> Iterator[Node]:
        """The nodes just below."""
        for attribute in fields(self):
            value: Any = getattr(self, attribute.name)
            parts = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)
            for part in parts:
                if isinstance(part, Node):
                    yield part


def names_in(node: Node) -> set[str]:
    """Return the names that occur in a part of the tree, bound or not."""
    names = set[str]()
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Name):
            names.add(part.name)
        waiting += part.parts
    return names


# Types, as they are written


@dataclass(frozen=True)
class NamedType(Node):
    """A type by its name; with arguments, such as `list(int)`."""

    name: str
    arguments: tuple[Node, ...] = ()


@dataclass(frozen=True)
class TupleType(Node):
    """`(items)`."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Parameter(Node):
    """`name: type`, in a record type, a function or a data type."""

    name: str
    type: Node


@dataclass(frozen=True)
class RecordType(Node):
    """`< fields >`."""

    fields: tuple[Parameter, ...]


@dataclass(frozen=True)
class CollectionType(Node):
    """`{item}`, a bag, or `[item]`, a list."""

    bag: bool = field(kw_only=True)
    item: Node


# Patterns; in one a Name binds a variable, and a Literal is a constant


@dataclass(frozen=True)
class Anything(Node):
    """`*`."""


@dataclass(frozen=True)
class TuplePattern(Node):
    """`(items)`."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class ListPattern(Node):
    """`[items]`."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class RecordPattern(Node):
    """`< names: items >`."""

    names: tuple[str, ...]
    items: tuple[Node, ...]


@dataclass(frozen=True)
class ConstructorPattern(Node):
    """`name(items)`."""

    name: str
    items: tuple[Node, ...]


@dataclass(frozen=True)
class TypedPattern(Node):
    """`pattern as type`."""

    pattern: Node
    type: Node


# Expressions


@dataclass(frozen=True)
class IfElse(Node):
    """`if condition then yes else no`."""

    condition: Node
    yes: Node
    no: Node


@dataclass(frozen=True)
class Let(Node):
    """`let pattern = value in body`."""

    pattern: Node
    value: Node
    body: Node


@dataclass(frozen=True)
class Lambda(Node):
    r"""`\(parameters): result. body`."""

    parameters: tuple[Parameter, ...]
    result: Node
    body: Node


@dataclass(frozen=True, kw_only=True)
class Repeat(Node):
    """`repeat names = start step body limit limit`; with several names the start is a tuple."""

    names: tuple[str, ...]
    start: Node
    body: Node
    limit: Node | None


@dataclass(frozen=True)
class Quantified(Node):
    """`some bindings: condition`, or `all`."""

    every: bool = field(kw_only=True)
    bindings: tuple[Binding, ...]
    condition: Node


@dataclass(frozen=True)
class SetOperation(Node):
    """`left union right`; operation: union, intersect or except."""

    operation: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Binding(Node):
    """`pattern in domain`, a generator, or `pattern = domain`, which binds one value."""

    pattern: Node
    domain: Node
    is_generator: bool = field(kw_only=True)


@dataclass(frozen=True)
class GroupBy(Node):
    """`group by pattern: key having having`; without a pattern the key is what the head repeats."""

    pattern: Node | None
    key: Node
    having: Node | None


@dataclass(frozen=True)
class SortKey(Node):
    """One key of `order by`."""

    value: Node
    descending: bool = field(kw_only=True)


@dataclass(frozen=True)
class OrderBy(Node):
    """`order by keys limit limit`."""

    keys: tuple[SortKey, ...]
    limit: Node | None


@dataclass(frozen=True, kw_only=True)
class Select(Node):
    """`select head from bindings where condition group by … order by …`."""

    distinct: bool
    head: Node
    bindings: tuple[Binding, ...]
    where: Node | None
    group: GroupBy | None
    order: OrderBy | None


@dataclass(frozen=True)
class Binary(Node):
    """`left operator right`: and, or, =, <>, <, <=, >, >=, +, -, *, /, mod."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Unary(Node):
    """`operator value`: not, +, -, exists."""

    operator: str
    value: Node


@dataclass(frozen=True)
class RangeOf(Node):
    """`first .. last`, a list, or `first ... last`, a relation."""

    relation: bool = field(kw_only=True)
    first: Node
    last: Node


@dataclass(frozen=True)
class Member(Node):
    """`value.name`."""

    value: Node
    name: str


@dataclass(frozen=True)
class Markup(Node):
    """`value.*`, `value.@name` or `value.@*`: children and attributes of XML."""

    value: Node
    what: str


@dataclass(frozen=True)
class TupleComponent(Node):
    """`value#position`."""

    value: Node
    position: int


@dataclass(frozen=True)
class Index(Node):
    """`value[index]`."""

    value: Node
    index: Node


@dataclass(frozen=True)
class Slice(Node):
    """`value[first:last]`."""

    value: Node
    first: Node
    last: Node


@dataclass(frozen=True)
class Typed(Node):
    """`value as type`."""

    value: Node
    type: Node


@dataclass(frozen=True)
class Name(Node):
    """A name."""

    name: str


@dataclass(frozen=True)
class Literal(Node):
    """A string, an integer or a double."""

    value: str | int | float


@dataclass(frozen=True)
class FunctionCall(Node):
    """`name(arguments)`."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class TupleOf(Node):
    """`(items)`; without items `()`."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class CollectionOf(Node):
    """`{items}`, a bag, or `[items]`, a list."""

    bag: bool = field(kw_only=True)
    items: tuple[Node, ...]


@dataclass(frozen=True)
class RecordOf(Node):
    """`< names: values >`."""

    names: tuple[str, ...]
    values: tuple[Node, ...]


@dataclass(frozen=True)
class Branch(Node):
    """`pattern: body` of a case."""

    pattern: Node
    body: Node


@dataclass(frozen=True)
class Case(Node):
    """`case value { branches }`."""

    value: Node
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class TypeValue(Node):
    """`type(type)`, an argument of a source."""

    type: Node


@dataclass(frozen=True)
class XPath(Node):
    """`xpath(path)`; path: as it is written."""

    path: str


@dataclass(frozen=True)
class Trace(Node):
    """`trace(value)`."""

    value: Node


@dataclass(frozen=True)
class Template(Node):
    """`[name| text {{e}} text |]`: the texts, one more than there are expressions, and these."""

    name: str
    texts: tuple[str, ...]
    holes: tuple[Node, ...]


# Items of a program


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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
