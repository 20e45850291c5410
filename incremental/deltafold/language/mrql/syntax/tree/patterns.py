"""Patterns of MRQL; in a pattern a Name binds a variable, and a Literal is a constant."""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.language.mrql.syntax.tree.node import Node


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
