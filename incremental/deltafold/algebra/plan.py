"""Define the query plan: columns, scalars, aggregate calls, and a closed family of nodes.

Nodes are frozen dataclasses whose constructors refuse invalid plans: a pass of the compiler that loses or confuses
columns fails there, and not later in Spark. Every node has `columns`, those of its rows in order, and `children`, the
nodes it reads. Within a node a name denotes one value: a column may be repeated unchanged (Spark passes the key of a
group to a Pandas function beside its rows), but two values never share a name, and neither do the two sides of a join.
In several branches of a union a name may recur, where a pass reads one input several times (expand_distinct).

A scalar is a reference to a column, SQL text written by the compiler, or an opaque expression of Spark's that only the
runtime can evaluate; here only its text, its columns and its type are known.

Two nodes belong to a query that reads its own answer: `Loop`, and `Given`, the rows that its step is evaluated over.

| kind | answer of the loop |
| --- | --- |
| levels | the sum of the levels: init, step(init), step(step(init)), …, a bag (`WITH RECURSIVE … UNION ALL`) |
| set | the least set that contains init and step(itself) (`UNION`, `fixpoint`) |
| best | of each key the best row of that set (`fixpoint` with a key) |
| times | what `limit` steps make of init (`iterate` with `times`) |
| converged | a point which one more step changes by no more than the tolerance (`iterate`, else) |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal, assert_never

from deltafold.algebra.monoids.declared import DeclaredMonoid
from deltafold.algebra.shapes import Shape


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
    """An expression of the user's query; `handle` is Spark's resolved expression and is never inspected here.

    shape: what the frontend found in it; it is looked for in queries with loops alone.
    """

    text: str
    type: str
    columns: frozenset[str] = field(repr=False)  # the order of a set differs between processes
    handle: object = field(default=None, compare=False, repr=False)
    shape: Shape | None = field(default=None, compare=False, repr=False)  # determined by the text


Scalar = Reference | Sql | Opaque


@dataclass(frozen=True)
class Item:
    """One output of a projection: `scalar AS column`."""

    column: Column
    scalar: Scalar


@dataclass(frozen=True, kw_only=True)
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
        _check_unique(f"source {self.relation}", self.columns)

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
        _check_unique(self.state, self.columns)
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
        _check_unique("a relation of constants", self.columns)


@dataclass(frozen=True)
class Project(OneInput):
    """Each row turned into the items."""

    child: Plan
    items: tuple[Item, ...]

    def __post_init__(self) -> None:
        _check_projection(self.items, self.child)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(item.column for item in self.items)


@dataclass(frozen=True)
class Filter(OneInput):
    """The rows for which the condition is true."""

    child: Plan
    condition: Scalar

    def __post_init__(self) -> None:
        _check_used("a filter", [self.condition], self.child)

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
        _check_used("a generator", [self.generator], self.child)
        _check_unique("a generator", self.produced)

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
            _check_projection([Item(*pair) for pair in zip(self.columns, projection, strict=True)], self.child)


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


@dataclass(frozen=True, kw_only=True)
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
        _check_join(self)

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
        _check_used("an aggregate", [*self.keys, *(c for call in self.calls for c in call.arguments)], self.child)
        _check_unique("an aggregate", self.columns)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.keys + tuple(call.column for call in self.calls)


GroupwiseKind = Literal["window", "group function", "limit"]
Undetermined = Literal["limit without order", "peers at a frame's edge"]
"""Why the answer of an operator is undetermined: two runs over the same rows may differ."""


@dataclass(frozen=True, kw_only=True)
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
        _check_used(f"a {self.kind}", self.keys, self.child)


UnsupportedReason = Literal["operator", "subquery", "subquery in a limit", "join type", "undeclared source"]


@dataclass(frozen=True, kw_only=True)
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


LoopKind = Literal["levels", "set", "best", "times", "converged"]
Keep = Literal["least", "greatest"]
Norm = Literal["sum", "mean", "max"]


@dataclass(frozen=True, kw_only=True)
class LoopTraits:
    """The properties of every loop of a kind.

    fixed_steps: its limit is the number of its steps; tolerant: it ends within a tolerance; keeps_best: it keeps one
    row of each key; is_set: it keeps each row once, whatever its level; by_one_level: the rows of a level are derived
    from those of the level before alone.
    """

    fixed_steps: bool = False
    tolerant: bool = False
    keeps_best: bool = False
    is_set: bool = False
    by_one_level: bool = False

    @property
    def replayed(self) -> bool:
        """Whether each refresh evaluates all steps again, since no step is stored."""
        return self.fixed_steps or self.tolerant

    @property
    def keyed(self) -> bool:
        """Whether a key must identify its rows."""
        return self.keeps_best or self.tolerant


def traits_of(kind: LoopKind) -> LoopTraits:
    """Return the properties of every loop of a kind."""
    match kind:
        case "levels":
            return LoopTraits(by_one_level=True)
        case "set":
            return LoopTraits(is_set=True)
        case "best":
            return LoopTraits(keeps_best=True)
        case "times":
            return LoopTraits(fixed_steps=True)
        case "converged":
            return LoopTraits(tolerant=True)
        case _:
            assert_never(kind)


@dataclass(frozen=True)
class Given:
    """Rows that are passed in when a plan is evaluated: those of a loop in its step, or of a side input of the step."""

    name: str
    columns: tuple[Column, ...]
    children: ClassVar[tuple[Plan, ...]] = ()

    def __post_init__(self) -> None:
        _check_unique(self.name, self.columns)


@dataclass(frozen=True)
class Tolerance:
    """How far the answer of a loop may be from its limit, in a norm of the differences of the double columns by key.

    residual: the most that one more step may change; error: the most that the fixpoint may differ, for a step that
    shrinks each difference to `contraction` of it. One of residual and error is given.
    """

    norm: Norm
    residual: float | None = None
    error: float | None = None
    contraction: float | None = None

    def __post_init__(self) -> None:
        if (self.residual is None) == (self.error is None) or (self.error is None) != (self.contraction is None):
            raise ValueError("a tolerance is a residual, or an error with a contraction")

    @property
    def allowed(self) -> float:
        """The greatest residual of an answer; ‖x − x*‖ ≤ residual / (1 − contraction) bounds the error."""
        if self.error is None or self.contraction is None:
            assert self.residual is not None
            return self.residual
        return self.error * (1 - self.contraction)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The answer of a loop; in `step` the rows found so far are `Given(name, …)`.

    The columns of init, step, the loop and its `Given` match by position. keys: of best and of numeric loops, the
    columns that identify a row; keep: of best, which row of a key; limit: the most rounds, of levels the most levels
    with rows, of times the number of steps; distinct: of levels, whether a row occurs once in each level;
    tolerance: of converged; detail: what else distinguishes the loop in its fingerprint.
    """

    name: str
    kind: LoopKind
    init: Plan
    step: Plan
    columns: tuple[Column, ...]
    limit: int
    keys: tuple[Column, ...] = ()
    keep: Keep | None = None
    distinct: bool = False
    tolerance: Tolerance | None = None
    detail: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        _check_unique(self.name, self.columns)
        types = [column.type for column in self.columns]
        for part, plan in (("start", self.init), ("step", self.step)):
            if [column.type for column in plan.columns] != types:
                raise ValueError(
                    f"the {part} of {self.name} has the columns {_types(plan.columns)}, not {_types(self.columns)}"
                )
        for read in _reads_of_loop(self.step, self.name):
            if [column.type for column in read.columns] != types:
                raise ValueError(f"the step of {self.name} reads {_types(read.columns)}, not {_types(self.columns)}")
        if not set(self.keys) <= set(self.columns):
            raise ValueError(
                f"a key of {self.name} ({_types(self.keys)}) is not one of its columns ({_types(self.columns)})"
            )
        traits = self.traits
        if (self.keep is not None) != traits.keeps_best or (self.tolerance is not None) != traits.tolerant:
            raise ValueError(
                f"{self.name} of kind {self.kind}: keep belongs to kind best, and tolerance to kind converged"
            )
        if traits.keyed and not self.keys:
            raise ValueError(f"{self.name} of kind {self.kind} has no key")

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.init, self.step)

    @property
    def traits(self) -> LoopTraits:
        """The properties of every loop of its kind."""
        return traits_of(self.kind)


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


def _reads_of_loop(plan: Plan, name: str) -> list[Given]:
    """Return the places in a step that read the rows of its loop."""
    if isinstance(plan, Given):
        return [plan] if plan.name == name else []
    return [read for child in plan.children for read in _reads_of_loop(child, name)]


def _types(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def _check_unique(node: str, columns: Sequence[Column]) -> None:
    """Raise ValueError for a node that has two columns of one name."""
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        repeated = dict.fromkeys(name for name in names if names.count(name) > 1)
        raise ValueError(f"{node} has several columns named {', '.join(repeated)}")


def _check_used(node: str, scalars: Iterable[Scalar | Column], *inputs: Plan) -> None:
    """Raise ValueError for a node that uses columns which its inputs lack."""
    available = {column.name for child in inputs for column in child.columns}
    used = (scalar.columns if not isinstance(scalar, Column) else {scalar.name} for scalar in scalars)
    if missing := sorted(frozenset[str]().union(*used) - available):
        raise ValueError(f"{node} uses columns its input lacks: {', '.join(missing)}")


def _check_projection(items: Sequence[Item], child: Plan) -> None:
    """Raise ValueError for a projection that gives two values one name, or uses columns that its input lacks."""
    _check_unique("a projection", [item.column for item in dict.fromkeys(items)])
    _check_used("a projection", [item.scalar for item in items], child)


def _check_join(join: Join) -> None:
    """Raise ValueError for a join whose sides share a name, or whose conditions use other columns."""
    right = {column.name for column in join.right.columns}
    if shared := dict.fromkeys(column.name for column in join.left.columns if column.name in right):
        raise ValueError(f"both sides of a join have columns named {', '.join(shared)}")
    _check_used("a join", join.conjuncts, join.left, join.right)
    _check_used("a join", [left for left, _, _ in join.keys], join.left)
    _check_used("a join", [right for _, right, _ in join.keys], join.right)
    if (join.exists is None) == (join.kind == "existence"):
        raise ValueError("an existence join, and no other, has a column that records the existence")
