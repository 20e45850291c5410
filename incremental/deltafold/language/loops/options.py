"""The options of a loop beside its start and its step, and the evaluator that a query's loops are handed to."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from deltafold.algebra.plan import Keep, LoopKind, Tolerance

StepFunction = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, kw_only=True)
class LoopOptions:
    """A loop's kind and what belongs to it, as in algebra's Loop; keys: the names of the columns that identify a row.

    function: the name of the function that the user called, for messages.
    """

    function: str
    kind: LoopKind
    limit: int
    keys: tuple[str, ...] = ()
    keep: Keep | None = None
    tolerance: Tolerance | None = None


class LoopEvaluator(Protocol):
    """An evaluator, to which `fixpoint` and `iterate` hand a loop."""

    def evaluate(self, start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
        """Return the answer of a loop; step gives columns of the start's number and types, under any names."""
        ...


_EVALUATOR: ContextVar[LoopEvaluator | None] = ContextVar("loop evaluator", default=None)


def evaluator() -> LoopEvaluator | None:
    """Return the evaluator of loops in this context; None for the batch definition."""
    return _EVALUATOR.get()


@contextmanager
def evaluate_by(chosen: LoopEvaluator) -> Generator[None]:
    """Hand the loops of a block to another evaluator."""
    token = _EVALUATOR.set(chosen)
    try:
        yield
    finally:
        _EVALUATOR.reset(token)
