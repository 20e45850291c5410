"""The query plan: a closed family of frozen nodes of relational algebra.

Every node has `columns`, those of its rows in order, and `children`, the nodes it reads. A scalar is a reference to a
column, SQL text written by the compiler, or an opaque expression of Spark's that only the runtime can evaluate; here
only its text, its columns and its type are known.
"""

from __future__ import annotations

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
    """An expression of the user's query; `handle` is Spark's resolved expression and is never inspected here."""

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
    (the columns Spark itself would keep per group), which the accumulator computes from its state columns;
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
class SourceRead(NoInput):
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
    """A table-generating function such as explode: `produced` columns beside those of the child."""

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


GroupwiseKind = Literal["window", "group function", "limit"]
Undetermined = Literal["limit without order", "peers at a frame's edge"]
"""What leaves the answer of an operator open: two runs over the same rows may differ."""


@dataclass(frozen=True)
class GroupwiseOp(OneInput):
    """An operator F whose answer for one value of `keys` depends on the rows with that value alone.

    Windows with PARTITION BY, functions of groups; without keys: limits and global windows.
    `handle` holds Spark's own nodes, outermost first, which are put over whichever input is asked for.
    """

    child: Plan
    kind: GroupwiseKind
    keys: tuple[Column, ...]
    columns: tuple[Column, ...]
    text: str
    undetermined: Undetermined | None = None
    handle: tuple[object, ...] = field(default=(), compare=False, repr=False)


UnsupportedReason = Literal[
    "operator", "subquery", "subquery in a limit", "join type", "undeclared source", "recursion"
]


@dataclass(frozen=True)
class Unsupported:
    """A node of Spark's without an incremental rule; the compiler refuses it.

    kind: Spark's class; text: what explain shows; reason, subject: why it has no rule, and the operator or join type
    that the reason names; detail: what distinguishes the node from others of its kind.
    """

    kind: str
    text: str
    reason: UnsupportedReason
    subject: str
    children: tuple[Plan, ...]
    columns: tuple[Column, ...]
    detail: str = ""


Plan = (
    SourceRead
    | StateRead
    | Values
    | Project
    | Filter
    | Generate
    | Expand
    | Union
    | Join
    | Aggregate
    | GroupwiseOp
    | Unsupported
)
