"""Turn errors of commands into one sentence on standard error and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from deltafold.algebra import errors
from deltafold.algebra.errors import explain_missing
from deltafold.cli import rendering
from deltafold.pipelines import catalogue

UNEQUAL = 1
USAGE = 2
REFUSED = 3
DATA = 4
BUSY = 5
UNEXPECTED = 70
LOST = 75
PIPE_CLOSED = 141
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

    def invoke(self, ctx: Any) -> Any:
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


def _complain(error: Exception) -> int:
    """Print the error on standard error, and return its exit code."""
    if isinstance(error, ImportError):
        error = explain_missing(error) or error
    sentence = str(error)
    if not isinstance(error, errors.DeltafoldError):
        what = f"{type(error).__name__}: {rendering.first_line_of(error)}"
        sentence = f"Unexpected {what} (--debug prints the traceback)"
    print(sentence, file=sys.stderr)
    return code_of(error)


def code_of(error: Exception) -> int:
    """Return the exit code of an error."""
    return _code_of_type(type(error))


def code_of_name(name: str) -> int:
    """Return the exit code of an error of this class."""
    return _code_of_type(getattr(errors, name, Exception))


def _code_of_type(error: type[Exception]) -> int:
    return next((code for kind, code in _CODES if issubclass(error, kind)), UNEXPECTED)
