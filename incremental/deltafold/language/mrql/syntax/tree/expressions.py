"""Expressions of MRQL."""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.language.mrql.syntax.tree.node import Node
from deltafold.language.mrql.syntax.tree.types import Parameter


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


@dataclass(frozen=True)
class Repeat(Node):
    """`repeat names = start step body limit limit`; with several names the start is a tuple."""

    names: tuple[str, ...]
    start: Node
    body: Node
    limit: Node | None


@dataclass(frozen=True)
class Quantified(Node):
    """`some bindings: condition`, or `all`."""

    every: bool
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
    """`pattern in domain`, or, where it is one value, `pattern = domain`."""

    pattern: Node
    domain: Node
    each: bool


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
    descending: bool


@dataclass(frozen=True)
class OrderBy(Node):
    """`order by keys limit limit`."""

    keys: tuple[SortKey, ...]
    limit: Node | None


@dataclass(frozen=True)
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

    relation: bool
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

    bag: bool
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


def names_in(node: Node) -> set[str]:
    """Return the names that occur in a part of the tree, bound or not."""
    found, waiting = set[str](), [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Name):
            found.add(each.name)
        waiting += each.parts
    return found
