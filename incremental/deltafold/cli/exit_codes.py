"""Turn errors of commands into one sentence on standard error and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from deltafold.algebra import errors
from deltafold.algebra.errors import explain_missing
from deltafold.cli import rendering
from deltafold.pipelines import catalogue

UNEQUAL, USAGE, REFUSED, DATA, BUSY, UNEXPECTED, LOST, PIPE_CLOSED = 1, 2, 3, 4, 5, 70, 75, 141
_CODES: tuple[tuple[type[Exception], int], ...] = (
    (catalogue.DeclarationError, USAGE),
    (errors.QueryError, USAGE),
    (errors.UsageError, USAGE),
    (errors.RefusedError, REFUSED),
    (errors.ChangedQueryError, REFUSED),
    (errors.SourceError, DATA),
    (errors.StateError, DATA),
    (errors.StorageError, DATA),
    (errors.CatalogError, DATA),
    (errors.NotConvergedError, DATA),
    (errors.BusyError, BUSY),
    (errors.LostSparkError, LOST),
)


class Commands(TyperGroup):
    """Turns the exceptions of a command into one sentence and an exit code."""

    def invoke(self, ctx: typer.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader has closed the pipe (`| head`). Python would raise again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(PIPE_CLOSED) from None
        except Exception as error:
            if isinstance(error, typer.Abort | typer.Exit) or hasattr(error, "exit_code"):
                raise
            if ctx.params["debug"]:
                traceback.print_exc()
            raise typer.Exit(_complain(error)) from None


def value(check: Callable[[str], str]) -> Callable[[str | None], str | None]:
    """Return an option callback that reports a ValueError of `check` as a usage error."""

    def run_check(text: str | None) -> str | None:
        try:
            return None if text is None else check(text)
        except ValueError as error:
            raise typer.BadParameter(f"{error}.") from None

    return run_check


def _complain(error: Exception) -> int:
    """Print the error on standard error, and return its exit code."""
    if isinstance(error, ModuleNotFoundError):
        error = explain_missing(error) or error
    known = isinstance(error, errors.DeltafoldError)
    unexpected = f"Unexpected {type(error).__name__}: {rendering.first_line_of(error)} (--debug prints the traceback)"
    print(str(error) if known else unexpected, file=sys.stderr)
    return next((code for kind, code in _CODES if isinstance(error, kind)), UNEXPECTED)
