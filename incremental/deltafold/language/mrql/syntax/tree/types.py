"""Types of MRQL as they are written."""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.language.mrql.syntax.tree.node import Node


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

    bag: bool
    item: Node
