"""Algebra room: what a query is, a closed family of frozen plan nodes. In: nothing. Out: plans that cannot be wrong.

Every node has `columns`, those of its rows in order, and `children`, the nodes it reads. A column's name is unique in
the whole plan. A scalar is a reference to a column, SQL text that the compiler itself wrote, or an opaque expression of
Spark's that only the runtime can evaluate; here only its text, its columns and its type are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal


@dataclass(frozen=True)
class Column:
    """A named, typed column; `type` is Spark's DDL name of the type (`decimal(12,2)`)."""

    name: str
    type: str


@dataclass(frozen=True)
class Reference:
    """The value of a column as it is."""

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
    """An expression of the user's query: `handle` is Spark's resolved expression, never looked into here."""

    text: str
    type: str
    columns: frozenset[str] = field(repr=False)  # a set prints in another order in every process
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
    (the columns Spark itself would keep per group), which the monoid computes from its state columns;
    handle: Spark's own aggregate expression, for groups that are recomputed.
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


class NoInput:
    """A node that reads no other node."""

    children: ClassVar[tuple[Plan, ...]] = ()


class OneInput:
    """A node that reads one other node."""

    child: Plan

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.child,)


@dataclass(frozen=True)
class Source(NoInput):
    """One occurrence of a source: `fields` pairs the source's own column names with the plan's unique columns."""

    relation: str
    fields: tuple[tuple[str, Column], ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for _, column in self.fields)


@dataclass(frozen=True)
class StateRead(NoInput):
    """The answers of a maintained aggregate, read from its state table: group keys, then one column per call."""

    state: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Values(NoInput):
    """Constant rows (VALUES, a query without FROM); `handle` is Spark's own leaf."""

    columns: tuple[Column, ...]
    text: str
    handle: object = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Project(OneInput):
    """Each row turned into the items."""

    child: Plan
    items: tuple[Item, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(item.column for item in self.items)


@dataclass(frozen=True)
class Filter(OneInput):
    """The rows for which the condition is true."""

    child: Plan
    condition: Scalar

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.child.columns


@dataclass(frozen=True)
class Generate(OneInput):
    """explode and its kin: `produced` columns beside those of the child."""

    child: Plan
    generator: Opaque
    outer: bool
    produced: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.child.columns + self.produced


@dataclass(frozen=True)
class Expand(OneInput):
    """Each row once per projection (cube, rollup, grouping sets)."""

    child: Plan
    projections: tuple[tuple[Scalar, ...], ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Union:
    """UNION ALL by position; the result has the columns of the first input, as in Spark."""

    children: tuple[Plan, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.children[0].columns

    def __post_init__(self) -> None:
        if any(len(child.columns) != len(self.columns) for child in self.children):
            raise ValueError("the inputs of a union have different numbers of columns")


JoinKind = Literal["inner", "left", "single", "right", "full", "semi", "anti", "existence"]


@dataclass(frozen=True)
class Join:
    """A join; `keys`: the equalities among its conjuncts as (left, right, null_safe); `exists`: of existence alone."""

    left: Plan
    right: Plan
    kind: JoinKind
    condition: Scalar | None
    keys: tuple[tuple[Scalar, Scalar, bool], ...] = ()
    exists: Column | None = None
    parts: tuple[Scalar, ...] = field(default=(), repr=False)

    @property
    def conjuncts(self) -> tuple[Scalar, ...]:
        return self.parts or (() if self.condition is None else (self.condition,))

    @property
    def columns(self) -> tuple[Column, ...]:
        if self.exists is not None:
            return (*self.left.columns, self.exists)
        return self.left.columns if self.kind in ("semi", "anti") else self.left.columns + self.right.columns

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.left, self.right)


@dataclass(frozen=True)
class Aggregate(OneInput):
    """Group by `keys`; without keys one row, whatever the input. Without calls: distinct keys."""

    child: Plan
    keys: tuple[Column, ...]
    calls: tuple[Call, ...]

    def __post_init__(self) -> None:
        known = {column.name for column in self.child.columns}
        used = [column.name for column in self.keys] + [c.name for call in self.calls for c in call.arguments]
        if missing := [name for name in used if name not in known]:
            raise ValueError(f"an aggregate uses columns its input lacks: {', '.join(missing)}")

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.keys + tuple(call.column for call in self.calls)


@dataclass(frozen=True)
class KeyLocal(OneInput):
    """An operator F whose answer for one value of `keys` depends on the rows with that value alone.

    Windows with PARTITION BY, aggregates without a merge; with no keys: limits and global windows.
    `handle` holds Spark's own nodes, outermost first, put over whichever input they are asked for.
    """

    child: Plan
    kind: str
    keys: tuple[Column, ...]
    columns: tuple[Column, ...]
    text: str
    ambiguous: str | None = None
    handle: tuple[object, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Foreign:
    """A node of Spark's that the algebra has no rule for; the compiler refuses it. detail: tells it from another."""

    kind: str
    text: str
    because: str
    instead: str
    children: tuple[Plan, ...]
    columns: tuple[Column, ...]
    detail: str = ""


Plan = (
    Source | StateRead | Values | Project | Filter | Generate | Expand | Union | Join | Aggregate | KeyLocal | Foreign
)


def walk(plan: Plan) -> Iterator[Plan]:
    """Every node, inputs before the nodes that read them, left to right."""
    for child in plan.children:
        yield from walk(child)
    yield plan


def sources(plan: Plan) -> tuple[str, ...]:
    """The names of the sources a plan reads, in order of first occurrence."""
    return tuple(dict.fromkeys(node.relation for node in walk(plan) if isinstance(node, Source)))
