"""Take back an epoch that failed by itself after it had written some of its tables (D-155).

It would fail whenever it was repeated, and its number cannot be used again: Delta would skip the writes of tables that
have its mark. So these tables are restored, and the epoch stays in the journal as one that changed nothing. Its entry
is replaced first, by one that says so (`takes_back`): after a crash, the next refresh restores what is left.

The first epoch of a generation has nothing before it, so its tables are left, and the next refresh goes on from the
generation before. Without one it begins another; until then the entry of a first load that failed stays, unfinished.
"""

from __future__ import annotations

from dataclasses import replace

from deltafold.algebra.errors import EvaluationError, NotConvergedError, QueryError
from deltafold.algebra.results.notes import EpochTakenBack
from deltafold.algebra.results.report import TAKEN_BACK, Report
from deltafold.refresh.reporting import versions_by_source
from deltafold.spark.java_errors import explain_errors
from deltafold.store.history import Failed, Finished, Intent
from deltafold.store.view_store import Store

BY_ITSELF = (NotConvergedError, QueryError, EvaluationError)
"""The errors of an epoch that depend on nothing but its query and the rows of its sources."""


def take_back(store: Store, failed: Intent) -> None:
    """Return to the epoch before a failed one, or leave the generation that it was to begin."""
    history = store.journal.history()
    if (before := history.before(failed)) is None:
        if any(generation != failed.generation for generation, _ in history.numbers):
            store.journal.remove(failed)
        else:
            store.journal.begin(Failed(failed))
        return
    pins = {name: pin.go_on() for name, pin in before.intent.sources.items()}
    begun = replace(before.intent, epoch=failed.epoch, sources=pins, tables=failed.tables)
    store.journal.begin(Failed(begun))
    restore(store, begun, before)


def restore(store: Store, begun: Intent, before: Finished) -> None:
    """Restore the tables that the failed epoch wrote, and complete its entry."""
    tables = {name: store.table(begun.generation, name) for name in begun.tables}
    with explain_errors({}, moving=False, work="return to the epoch before"):
        for name, table in tables.items():
            version = begun.tables[name]
            if version is not None and table.version() != version:
                table.restore(version)
        after = {name: table.version() for name, table in tables.items()}
    store.journal.finish(Finished(begun, report_of_nothing(before.report, begun), after))
    if before.taken_back:
        store.journal.remove(before.intent)  # of many failures in a row the journal keeps the last


def report_of_nothing(before: Report, begun: Intent) -> Report:
    """Return the report of an epoch that was taken back; the answer is that of the epoch before, and as old."""
    return Report(
        view=begun.view,
        epoch=begun.epoch,
        generation=begun.generation,
        verdict=TAKEN_BACK,
        versions=versions_by_source(begun.sources),
        finished=before.finished,
        partitions=(),
        residuals=before.residuals,
        notes=(EpochTakenBack(),),
    )
