"""The nodes of a query that reads its own answer: the loop, and the rows that its step is evaluated over.

| kind | answer of the loop |
| --- | --- |
| levels | the sum of the levels: init, step(init), step(step(init)), …, a bag (`WITH RECURSIVE … UNION ALL`) |
| set | the least set that contains init and step(itself) (`UNION`, `fixpoint`) |
| best | of each key the best row of that set (`fixpoint` with a key) |
| times | what `limit` steps make of init (`iterate` with `times`) |
| converged | a point which one more step changes by no more than the tolerance (`iterate`, else) |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, assert_never

from deltafold.algebra.plan.checks import check_unique
from deltafold.algebra.plan.expressions import Column

if TYPE_CHECKING:
    from deltafold.algebra.plan.nodes import Plan

LoopKind = Literal["levels", "set", "best", "times", "converged"]
Keep = Literal["least", "greatest"]
Norm = Literal["sum", "mean", "max"]


@dataclass(frozen=True)
class LoopTraits:
    """What holds for every loop of a kind.

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
        """Whether each refresh evaluates the steps, since none of them is kept."""
        return self.fixed_steps or self.tolerant

    @property
    def keyed(self) -> bool:
        """Whether a key must identify its rows."""
        return self.keeps_best or self.tolerant


def traits_of(kind: LoopKind) -> LoopTraits:
    """Return what holds for every loop of a kind."""
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
    """Rows that whoever evaluates the plan provides: of a loop in its step, or of a side input of one."""

    name: str
    columns: tuple[Column, ...]
    children: ClassVar[tuple[Plan, ...]] = ()

    def __post_init__(self) -> None:
        check_unique(self.name, self.columns)


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


@dataclass(frozen=True)
class Loop:
    """The answer of a loop; in `step` the rows found so far are `Given(name, …)`.

    The columns of init, step, the loop and what is given match by position. keys: of best and of numeric loops, the
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
        check_unique(self.name, self.columns)
        types = [column.type for column in self.columns]
        for part, plan in (("start", self.init), ("step", self.step)):
            if [column.type for column in plan.columns] != types:
                raise ValueError(
                    f"the {part} of {self.name} has the columns {_types(plan.columns)}, not {_types(self.columns)}"
                )
        for given in _find_given(self.step, self.name):
            if [column.type for column in given.columns] != types:
                raise ValueError(f"the step of {self.name} reads {_types(given.columns)}, not {_types(self.columns)}")
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
        """What holds for every loop of its kind."""
        return traits_of(self.kind)


def _find_given(plan: Plan, name: str) -> list[Given]:
    """Return the occurrences of a loop in its step."""
    if isinstance(plan, Given):
        return [plan] if plan.name == name else []
    return [found for child in plan.children for found in _find_given(child, name)]


def _types(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)
