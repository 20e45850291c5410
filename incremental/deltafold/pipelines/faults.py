"""Describe why a task failed as an orchestrator may store it: by a sentence without values of rows.

    DeltafoldError    its sentence; not tried again, since the same input gives the same error
    BusyError         likewise, but tried again: the other process will end
    LostSparkError    likewise, but tried again: the next attempt starts another Spark, and finishes what was begun
    anything else     a crash: its class is the sentence; tried again, which is safe, since a refresh finishes a
                      half-written epoch, and a landing replaces whole partitions

More people can read an orchestrator's database than the data, and the messages of Spark and Python contain values ("The
value 'x' cannot be cast"). So the sentence is the `logged` form of a DeltafoldError, without the message of any other
exception, unless the pipeline declares `show_rows_in_errors: true`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deltafold.algebra.errors import BusyError, DeltafoldError, LostSparkError, RefusedError

SHOWN_BY = (
    "run from a terminal, `deltafold --debug` shows everything, and `show_rows_in_errors: true` in pipeline.yaml does "
    "so here"
)


@dataclass(frozen=True)
class TaskFault:
    """Why a task failed.

    parts: the class of the error, and node, reason and fix of a refusal; again: whether another attempt may succeed.
    """

    sentence: str
    parts: Mapping[str, str]
    again: bool


def explain_fault(error: Exception, shown: bool) -> TaskFault:
    """Describe an exception; shown: with values of rows."""
    parts = {"error": type(error).__name__}
    if isinstance(error, RefusedError):
        parts |= {part: str(getattr(error, part)) for part in ("node", "because", "instead")}
    if isinstance(error, DeltafoldError):
        sentence = str(error) if shown else _omit_values(error)
        return TaskFault(sentence, parts, isinstance(error, BusyError | LostSparkError))
    return TaskFault(f"{type(error).__name__}: {error}" if shown else _crash(error), parts, again=True)


def _omit_values(error: DeltafoldError) -> str:
    """Return the error's sentence without values; if it has any, with the way to see them."""
    if error.logged == str(error):
        return error.logged
    return f"{error.logged.rstrip('.')}. Values of rows are omitted: {SHOWN_BY}."


def _crash(error: Exception) -> str:
    """Return the class of an unexpected exception, Spark's or the system's name for it, and how to see its message."""
    condition = getattr(error, "getCondition", lambda: None)()  # of Spark, such as CAST_INVALID_INPUT
    kind = f"{type(error).__name__} [{condition}]" if condition else type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{kind}: {error.strerror}" + (f": {error.filename}" if error.filename else "")
    return f"Unexpected {kind}. Its message, which may contain values of rows, is omitted: {SHOWN_BY}."
