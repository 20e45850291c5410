"""Create a branch of a view from its last finished epoch, and drop views (D-025).

A view is not dropped while a view or a branch reads it. Those of other processes are recorded in its folder
(store/dependents.py); those that this process declared are remembered here (`remember`).

The tables of a branch are shallow clones: Delta tables whose first files are those of the original. The original
records the branch (store/dependents.py) and keeps these files until it is dropped. A branch is made in a hidden folder
and appears by one rename; at a URI, where nothing can be renamed, it appears with its journal, which is written last.
So a crash leaves no half branch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Protocol
from weakref import WeakValueDictionary

from deltafold.algebra.errors import DeltafoldError, StateError
from deltafold.algebra.results.notes import Branched
from deltafold.algebra.results.report import BRANCHED
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import Place
from deltafold.operations.metrics import metrics_of
from deltafold.refresh.sources.upstream import Inputs
from deltafold.spark.catalyst import JavaError
from deltafold.spark.java_errors import cause
from deltafold.store.answer_pointer import AnswerPointer
from deltafold.store.dependents import Reader, Readers
from deltafold.store.history import WHOLE, AnswerPin, Finished
from deltafold.store.journal import JOURNAL
from deltafold.store.snapshot import LastAnswer, answer_table
from deltafold.store.view_store import Store
from deltafold.telemetry import now


class DeclaredView(Protocol):
    """A declared view, refreshed or not."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def folder(self) -> Place:
        """The folder of its journal and tables."""
        ...

    def reads(self, folder: Place) -> bool:
        """Return whether its query reads the view in a folder; raises DeltafoldError if it cannot be analysed."""
        ...


DECLARED: WeakValueDictionary[Place, DeclaredView] = WeakValueDictionary()  # the latest declaration for each folder


def remember(view: DeclaredView) -> None:
    """Record a declared view as a reader of the views that it reads, for as long as its warehouse exists."""
    DECLARED[view.folder] = view


def forget(folder: Place) -> None:
    """Remove a dropped view from the record."""
    DECLARED.pop(folder, None)


def readers(folder: Place) -> list[str]:
    """Return the names of the declared views that read the view in a folder; a query that fails counts as a reader."""
    return [view.name for view in list(DECLARED.values()) if _may_read(view, folder)]


def _may_read(view: DeclaredView, folder: Place) -> bool:
    try:
        return view.reads(folder)
    except DeltafoldError:
        return True  # a query that cannot be analysed now


def create_branch(store: Store, target: Store, inputs: Inputs) -> None:
    """Create the view of `target` as a branch of the view in `store`; inputs: the sources of that view.

    Raises StateError if the target exists already, or the original has no finished epoch.
    """
    _check_free(target)
    with store.lock("refreshed or maintained"):
        entry = LastAnswer(store).entry
        records_at(target.folder.parent).create(shared=True)
        folder = target.folder.parent.resolve() / target.folder.name
        written = entry.after.items()
        versions = {f"g{entry.intent.generation}/{name}": version for name, version in written if version is not None}
        if not versions:
            raise StateError(
                f"view {store.view}: its journal does not record the versions of its tables. Rebuild it first."
            )
        Readers(store.folder).add(Reader(str(folder), "", versions))
        inputs.announce_chain(folder)
        with records_at(folder).build(f"view {target.view}", target.tuning.lock_seconds) as scratch:
            _check_free(target)
            _clone_tables(store, replace(target, folder=scratch), entry)
    with target.lock("refreshed or maintained"):
        AnswerPointer(target).begin()


def _check_free(target: Store) -> None:
    """Raise StateError if there is a view of this name."""
    if not records_at(target.folder).is_free() or target.journal.last() is not None:
        raise StateError(f"view {target.view}: it exists already, in {target.folder}. Choose another name, or drop it.")


def drop_view(store: Store, declared: Collection[str] = (), *, force: bool = False) -> None:
    """Remove a view with its tables and its journal.

    declared: the views declared in this process that read it; force: drop it even if a view reads it.
    Raises StateError while it has branches or a view reads it, BusyError while it is refreshed. A crash may leave a
    hidden folder, which the next drop of a view of this name removes.
    """
    if not records_at(store.folder).exists():
        if not force:
            _check_unread(store, declared)
        AnswerPointer(store).drop_sql_views()  # the folder may have been removed by other means
        return
    with store.lock("refreshed or maintained"):
        readers = Readers(store.folder)
        readers.check_no_branch(store.view)
        if not force:
            _check_unread(store, {*declared, *readers.views(partial(_has_pinned_table, store))})
        AnswerPointer(store).drop_sql_views()
        hidden = records_at(store.folder).withdraw(JOURNAL)
    if hidden is not None:
        hidden.remove()
    if metrics := metrics_of(store):
        metrics.forget()


def _has_pinned_table(store: Store, pin: AnswerPin) -> bool:
    """Return whether a pinned table belongs to the view; by its id, since another view may have had the name."""
    table = store.table_at(pin.place)
    return table.version() is None or table.metadata().id == pin.identity


def _check_unread(store: Store, readers: Collection[str]) -> None:
    """Raise StateError if other views read this one."""
    if readers:
        names = ", ".join(sorted(readers))
        raise StateError(
            f"view {store.view} cannot be dropped: {names} {'reads' if len(readers) == 1 else 'read'} it. "
            f"Drop {names} first, or drop {store.view} with drop(force=True)."
        )


def _clone_tables(store: Store, scratch: Store, entry: Finished) -> None:
    """Clone the tables of an epoch into a folder, with a journal of that epoch alone, which is written last."""
    records_at(scratch.folder).remove()
    after = dict[str, int | None]()
    scratch.create_folders(1, entry.after, answer_table(store.view, entry))
    try:
        for name, version in entry.after.items():
            table = scratch.table(1, name)
            assert version is not None
            table.clone(store.table(entry.intent.generation, name), version)
            after[name] = table.version()
    except JavaError as error:
        raise DeltafoldError(
            f"Delta could not clone the tables of view {store.view}: {cause(error)}. Try again."
        ) from error
    # The epoch keeps its number, from which the copy numbers of equal rows in the view's table are derived.
    intent = replace(entry.intent, view=scratch.view, generation=1, extent=WHOLE, lost="")
    notes = (Branched(view=store.view, epoch=intent.epoch),)
    report = replace(
        entry.report, view=scratch.view, generation=1, verdict=BRANCHED, notes=notes, finished=now(), below=(),
        lost="",
    )  # fmt: skip
    journal = scratch.journal
    if recipe := store.journal.recipe(intent.fingerprint):
        journal.record(recipe)
    journal.finish(Finished(intent, report, after))
