"""Assets room: how an error becomes a failed step that says what happened.

In: whatever a step raises. Out: Dagster's Failure.
A DeltafoldError is an answer, not an accident: its sentence becomes the step's description, and nothing is retried, for
the same input would give the same answer. Only BusyError may be retried: the other process will be done at some time.
Everything else is a crash: it passes through untouched, and CRASHES, the retry policy of every step, tries again (every
step is idempotent: the refresh protocol finishes a half-written epoch, a landing replaces its partitions).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from incremental.algebra.errors import BusyError, DeltafoldError, RefusedError

CRASHES = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)


@contextmanager
def failures() -> Iterator[None]:
    """Turns the DeltafoldErrors of its body into Dagster Failures.

    Raises:
        dg.Failure: description = the error's own sentence, `allow_retries` only for a busy view.
    """
    try:
        yield
    except DeltafoldError as error:
        raise dg.Failure(
            description=str(error), metadata=_metadata(error), allow_retries=isinstance(error, BusyError)
        ) from error


def _metadata(error: DeltafoldError) -> dict[str, dg.MetadataValue]:
    told: dict[str, dg.MetadataValue] = {"error": dg.MetadataValue.text(type(error).__name__)}
    if isinstance(error, RefusedError):
        told |= {part: dg.MetadataValue.text(str(getattr(error, part))) for part in ("node", "because", "instead")}
    return told
