"""Report the work of a command to Dagster, if DAGSTER_HOME names an instance.

Commands work without Dagster, and this package does not import it: the reporter in `deltafold.dagster` is imported by
name, only if the variable is set. If reporting fails, there is one warning; landings and refreshes are complete anyway,
and the next command reports them.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltafold.algebra.errors import explain_missing_packages
from deltafold.cli import rendering
from deltafold.pipelines import descriptions

if TYPE_CHECKING:
    from deltafold.api import Landing, Report, Verification, View
    from deltafold.pipelines.catalogue import Pipeline

HOME_VARIABLE = "DAGSTER_HOME"
REPORTER = "deltafold.dagster.runless"


@dataclass(frozen=True)
class Landed:
    """Files of one source were landed, or found unchanged."""

    pipeline: Pipeline
    landing: Landing


@dataclass(frozen=True)
class Refreshed:
    """A view was refreshed, rebuilt, rolled back, rebucketed or branched; below: because a view above was refreshed."""

    pipeline: Pipeline
    view: View
    report: Report
    below: bool = False


@dataclass(frozen=True)
class Verified:
    """A view was compared with its batch query."""

    pipeline: Pipeline
    view: View
    verification: Verification


ReportedWork = Landed | Refreshed | Verified


def report_refresh(pipeline: Pipeline, view: View, report: Report) -> list[Refreshed]:
    """Report a refresh with those of the views below, the lowest first."""
    if not report.below:
        return [Refreshed(pipeline, view, report)]
    opened = descriptions.chain(pipeline, view)
    below = {each.view: replace(each, below=report.below) for each in report.below}
    first = [Refreshed(*opened[name], below[name], below=True) for name in opened if name in below]
    return [*first, Refreshed(pipeline, view, report)]


def send(works: Sequence[ReportedWork], progress: Callable[[str], None] | None = None) -> bool:
    """Report to Dagster, and return whether it succeeded; a failure is one line on standard error."""
    home = os.environ.get(HOME_VARIABLE)
    if not works or not home:
        return False
    if progress:
        progress("reporting to Dagster")  # SQLite takes 10 ms or more for a partition
    try:
        with explain_missing_packages():
            importlib.import_module(REPORTER).report(works)
    except Exception as error:  # no failure of the orchestrator may fail the command: its work is done
        why = f"{type(error).__name__}: {rendering.first_line_of(error)}".rstrip(".")
        print(
            f"not reported to Dagster in {home}: {why}. The data is complete; the next command reports again, "
            f"or unset {HOME_VARIABLE}.",
            file=sys.stderr,
        )
        return False
    return True
