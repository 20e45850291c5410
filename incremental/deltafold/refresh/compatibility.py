"""Check whether a state was built from the current query and tables of its view, and list the changes."""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.algebra.errors import ChangedQueryError, StateError
from deltafold.algebra.recipe import Current
from deltafold.refresh.incremental_refresh import Incremental, RefreshStrategy
from deltafold.refresh.mode import ModePolicy
from deltafold.refresh.sources.upstream import Inputs
from deltafold.store.history import Event, Finished, Intent, tables_of
from deltafold.store.journal import Journal
from deltafold.store.view_store import Store

REBUILD = "rebuild"


@dataclass(frozen=True)
class Redefinition:
    """The changes since a state was built, in one sentence and line by line.

    goes_on: whether the view does so by itself, in a new generation; retyped: the columns of sources that have other
    types, one a line, if nothing else changed.
    """

    view: str
    what: str
    lines: tuple[str, ...]
    goes_on: bool = False
    retyped: tuple[str, ...] = ()

    def refuse(self, instead: str) -> ChangedQueryError:
        """Return the error that refuses the change; instead: the fix."""
        return ChangedQueryError("\n  ".join([f"view {self.view}: {self.what}. {instead}.", *self.lines]))


def find_redefinition(
    view: str, journal: Journal, entry: Event, current: Current, strategy: RefreshStrategy | None = None
) -> Redefinition | None:
    """Return the changes since an epoch, None if there are none; strategy: compare its tables too, if given."""
    built = entry.intent.fingerprint
    if built != current.recipe.fingerprint:
        what = "the query, or a column that it reads, changed since the state was built"
        kept = journal.recipe(built)
        return Redefinition(view, what, current.since(kept), current.continues(built), current.find_retyped(kept))
    if strategy is None:
        return None
    kept, now = set(tables_of(entry)), set(strategy.tables)
    if (not kept or kept == now) and (isinstance(entry, Finished) or would_write_same(entry.intent, strategy)):
        return None
    then = f"{', '.join(sorted(kept))} then, {', '.join(sorted(now))} now" if kept else "or in other columns"
    because = (
        "its publication or declared keys changed, or another release split the query into states "
        "(an earlier one had a state for each of several equal group-bys)"
    )
    if entry.intent.mode != strategy.mode:
        because = f"it was maintained by {entry.intent.mode} then, and is by {strategy.mode} now"
    return Redefinition(view, f"other tables than before ({then}), as {because}", ())


def find_narrowing(view: str, inputs: Inputs, last: Intent) -> Redefinition | None:
    """Return the types that do not contain those that an epoch read, None if there are none (D-227)."""
    if last.mode != Incremental.mode or not (lines := inputs.find_narrowed(last.sources)):
        return None  # a recompute reads no version before
    what = "a source has a type that does not contain the one that the last epoch read"
    return Redefinition(view, what, lines, retyped=lines)


def would_write_same(intent: Intent, strategy: RefreshStrategy) -> bool:
    """Return whether an unfinished epoch would write the states that it began with, if they were recorded."""
    columns = {name: set(stored[1:]) for name, stored in strategy.states.items()}
    return not intent.states or columns == {name: set(stored[1:]) for name, stored in intent.states.items()}


def reason(store: Store, mode_policy: ModePolicy, inputs: Inputs, intent: Intent) -> Redefinition | None:
    """Return why a generation replaces the one before it, if its query, its tables or what its sources have changed."""
    if intent.epoch > 1:
        return None
    if intent.lost:
        return Redefinition(store.view, "a source lost what the last epoch read", (intent.lost,))
    earlier = [entry for entry in store.journal.entries() if entry.intent.generation < intent.generation]
    if not earlier:
        return None
    last = earlier[-1]
    return find_redefinition(
        store.view, store.journal, last, mode_policy.current, mode_policy.of(last.intent.mode)
    ) or find_narrowing(store.view, inputs, last.intent)


def check_layout(store: Store, generation: int, strategy: RefreshStrategy) -> None:
    """Raise StateError for tables whose columns differ from those that this release stores."""
    for name in strategy.tables:
        table = store.table(generation, name)
        expected, stored = set(strategy.storage_of(name, 1).columns), set(table.schema().names)
        if expected != stored:
            differing = ", ".join(sorted(expected ^ stored))
            raise StateError(
                f"the table {name} of view {store.view} has other columns than this release keeps ({differing}): "
                "another release wrote it, or it was altered. Use that release, or rebuild the view."
            )


def check_tables(store: Store, last: Finished) -> None:
    """Raise StateError for a table that is gone, or has rows that the last epoch did not leave there."""
    for name, version in last.after.items():
        table = store.table(last.intent.generation, name)
        latest = table.version()
        if latest is None:
            raise StateError(f"view {store.view}: its table {table.path} is gone. Rebuild the view.")
        commits = None if version is None or latest <= version else table.commits(version, latest)
        changes = [
            not (commit.compacts or commit.uncounted) and bool(commit.added or commit.removed)
            for commit in commits or ()
        ]
        if any(changes):
            raise StateError(
                f"view {store.view}: its table {table.path} has rows that its journal does not know, since version "
                f"{latest - len(changes) + 1 + changes.index(True)}: another program wrote to it, or an epoch is "
                "missing in the journal. Rebuild the view."
            )
