"""Define columns, and the scalars and aggregate calls over them.

A scalar is a reference to a column, SQL text written by the compiler, or an opaque expression of Spark's that only the
runtime can evaluate; here only its text, its columns and its type are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deltafold.algebra.monoids.declared import DeclaredMonoid


@dataclass(frozen=True)
class Column:
    """A named, typed column; `type` is Spark's DDL name of the type (`decimal(12,2)`)."""

    name: str
    type: str


@dataclass(frozen=True)
class Reference:
    """The value of a column."""

    column: Column

    @property
    def text(self) -> str:
        return self.column.name

    @property
    def type(self) -> str:
        return self.column.type

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.column.name})


@dataclass(frozen=True)
class Sql:
    """SQL text written by the compiler over unique column names; Spark parses it when the plan is lowered."""

    text: str
    type: str
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Opaque:
    """An expression of the user's query; `handle` is Spark's resolved expression and is never inspected here."""

    text: str
    type: str
    columns: frozenset[str] = field(repr=False)  # the order of a set differs between processes
    handle: object = field(default=None, compare=False, repr=False)


Scalar = Reference | Sql | Opaque


@dataclass(frozen=True)
class Item:
    """One output of a projection: `scalar AS column`."""

    column: Column
    scalar: Scalar


@dataclass(frozen=True)
class Call:
    """One aggregate of a group-by.

    column: its answer; function: Spark's class name in lower case (`sum`); arguments: columns of the child;
    mode: Spark's overflow mode (ansi, legacy, try) where it matters; answer: Spark's final expression over `buffers`
    (the columns Spark itself would keep per group), which the accumulator computes from its state columns;
    handle: Spark's own aggregate expression, for groups that are recomputed; declared: the user's monoid that merges
    its argument.
    """

    column: Column
    function: str
    arguments: tuple[Column, ...]
    text: str
    buffers: tuple[Column, ...] = ()
    answer: Scalar | None = None
    distinct: bool = False
    mode: str = "ansi"
    handle: object = field(default=None, compare=False, repr=False)
    declared: DeclaredMonoid | None = None
