"""Define the nodes of relational algebra, as frozen dataclasses whose constructors refuse invalid plans.

Every node has `columns`, those of its rows in order, and `children`, the nodes it reads. Within a node a name denotes
one value: a column may be repeated unchanged (Spark passes the key of a group to a Pandas function beside its rows),
but two values never share a name, and neither do the two sides of a join. In several branches of a union a name may
recur, where a pass reads one input several times (expand_distinct).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

from deltafold.algebra.plan.checks import check_join, check_projection, check_unique, check_used
from deltafold.algebra.plan.expressions import Call, Column, Item, Opaque, Scalar
from deltafold.algebra.plan.loops import Given, Loop


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

    def __post_init__(self) -> None:
        check_unique(f"source {self.relation}", self.columns)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for _, column in self.fields)


@dataclass(frozen=True)
class StateRead(NoInput):
    """The answers of a maintained aggregate, read from its state table: group keys, then one column per call.

    stored: the state's own columns, in the same order, where it is that of another group-by and has other names; empty
    if the names are the same.
    """

    state: str
    columns: tuple[Column, ...]
    stored: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        check_unique(self.state, self.columns)
        if self.stored and [column.type for column in self.stored] != [column.type for column in self.columns]:
            raise ValueError(f"{self.state} is read under columns of other types")

    @property
    def own(self) -> tuple[Column, ...]:
        """The state's own columns, in the order of the reader's."""
        return self.stored or self.columns


@dataclass(frozen=True)
class Values(NoInput):
    """Constant rows (VALUES, a query without FROM); `handle` is Spark's own leaf."""

    columns: tuple[Column, ...]
    text: str
    handle: object = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_unique("a relation of constants", self.columns)


@dataclass(frozen=True)
class Project(OneInput):
    """Each row turned into the items."""

    child: Plan
    items: tuple[Item, ...]

    def __post_init__(self) -> None:
        check_projection(self.items, self.child)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(item.column for item in self.items)


@dataclass(frozen=True)
class Filter(OneInput):
    """The rows for which the condition is true."""

    child: Plan
    condition: Scalar

    def __post_init__(self) -> None:
        check_used("a filter", [self.condition], self.child)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.child.columns


@dataclass(frozen=True)
class Generate(OneInput):
    """A table-generating function such as explode: `produced` columns beside, or in place of, those of the child."""

    child: Plan
    generator: Opaque
    outer: bool
    produced: tuple[Column, ...]

    def __post_init__(self) -> None:
        check_used("a generator", [self.generator], self.child)
        check_unique("a generator", self.produced)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return (*(column for column in self.child.columns if column not in self.produced), *self.produced)


@dataclass(frozen=True)
class Expand(OneInput):
    """Each row once per projection (cube, rollup, grouping sets)."""

    child: Plan
    projections: tuple[tuple[Scalar, ...], ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        for projection in self.projections:
            check_projection([Item(*pair) for pair in zip(self.columns, projection, strict=True)], self.child)


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

    def __post_init__(self) -> None:
        check_join(self)

    @property
    def conjuncts(self) -> tuple[Scalar, ...]:
        return self.parts or (() if self.condition is None else (self.condition,))

    @cached_property
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
        check_used("an aggregate", [*self.keys, *(c for call in self.calls for c in call.arguments)], self.child)
        check_unique("an aggregate", self.columns)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.keys + tuple(call.column for call in self.calls)


GroupwiseKind = Literal["window", "group function", "limit"]
Undetermined = Literal["limit without order", "peers at a frame's edge"]
"""What leaves the answer of an operator open: two runs over the same rows may differ."""


@dataclass(frozen=True)
class GroupwiseOp(OneInput):
    """An operator F whose answer for one value of `keys` depends on the rows with that value alone.

    Windows with PARTITION BY, functions of groups; without keys: limits and global windows.
    `handle`: Spark's own nodes, outermost first, which the runtime puts over any input.
    """

    child: Plan
    kind: GroupwiseKind
    keys: tuple[Column, ...]
    columns: tuple[Column, ...]
    text: str
    undetermined: Undetermined | None = None
    handle: tuple[object, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        check_used(f"a {self.kind}", self.keys, self.child)


UnsupportedReason = Literal["operator", "subquery", "subquery in a limit", "join type", "undeclared source"]


@dataclass(frozen=True)
class Unsupported:
    """A node of Spark's without an incremental rule; the compiler refuses it.

    kind: Spark's class; text: for explain; reason, subject: why it has no rule, and the operator or join type
    that the reason names; detail: distinguishes the node from others of its kind.
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
    | Given
    | Loop
    | Unsupported
)
