"""Turn errors into failed steps that show their cause, and no value of a row.

    DeltafoldError    its sentence is the step's description; not retried, since the same input gives the same error
    BusyError         likewise, but retried: the other process will end
    LostSparkError    likewise, but retried: the next attempt starts another Spark, and finishes what was begun
    anything else     a crash: its class is the description, its traceback shows code; retried (CRASHES), which is safe,
                      since a refresh finishes a half-written epoch, and a landing replaces whole partitions

Dagster stores a failure with its causes in the event database, which more people can read than the data, and the
messages of Spark and Python contain values ("The value 'x' cannot be cast"). So a failure has the `logged` form of a
DeltafoldError, no message of another exception, and no cause, unless the pipeline declares `show_rows_in_errors: true`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from incremental.algebra.errors import BusyError, DeltafoldError, LostSparkError, RefusedError
from pipelines.catalogue import Pipeline

CRASHES = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)
SHOWN_BY = (
    "run from a terminal, `deltafold --debug` shows everything, and `show_rows_in_errors: true` in pipeline.yaml does "
    "so here"
)


@contextmanager
def failures(pipeline: Pipeline) -> Iterator[None]:
    """Raise the exceptions of the body as Dagster Failures, without values of rows unless the pipeline shows them.

    Raises:
        dg.Failure: with the traceback of the exception, whose lines are code.
    """
    shown = pipeline.declaration.show_rows_in_errors
    from incremental.spark.lost import explain_lost_spark

    try:
        with explain_lost_spark():
            yield
    except DeltafoldError as error:
        description = str(error) if shown else _omit_values(error)
        again = isinstance(error, BusyError | LostSparkError)
        failure = dg.Failure(description, metadata=_metadata(error), allow_retries=again)
        raise failure.with_traceback(error.__traceback__) from (error if shown else None)
    except Exception as error:
        if shown:
            raise
        failure = dg.Failure(_crash(error), metadata=_metadata(error), allow_retries=True)
        raise failure.with_traceback(error.__traceback__) from None


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


def _metadata(error: Exception) -> dict[str, dg.MetadataValue]:
    entries: dict[str, dg.MetadataValue] = {"error": dg.MetadataValue.text(type(error).__name__)}
    if isinstance(error, RefusedError):
        entries |= {part: dg.MetadataValue.text(str(getattr(error, part))) for part in ("node", "because", "instead")}
    return entries
