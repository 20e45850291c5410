"""Point readers to the table with a view's current answer: a file beside the generations, and a SQL view (D-057).

The table is the plain one (plain_answer.py) where there is one, else the maintained one.

When an epoch makes another table the current one, both are written after it is finished, the file first; after a crash,
the next refresh or `maintain` writes them before anything else. The name of the SQL view is in the file before the SQL
view exists, so that it can be dropped when the view is dropped or published under another name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from deltafold.algebra.errors import CatalogError, StateError
from deltafold.algebra.plan import Column
from deltafold.algebra.results.address import Address, is_same_name
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import Place
from deltafold.lake.sql_view import VIEW_PROPERTY, SqlView, select_columns
from deltafold.spark.job_stats import Cost
from deltafold.store.history import Event, Finished
from deltafold.store.journal import Journal, never_refreshed
from deltafold.store.plain_answer import PlainAnswer
from deltafold.store.snapshot import answer_table
from deltafold.store.view_store import Store
from deltafold.telemetry import log_work, now

CURRENT = "current.json"
OWNER = "deltafold.owner"


@dataclass(frozen=True)
class PointerFile:
    """The file `current.json` of a view, in its folder."""

    folder: Place

    def read(self) -> Address | None:
        """Return the address in the file; None if the file is missing or damaged."""
        try:
            return Address.from_json(records_at(self.folder).get(CURRENT))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, address: Address) -> None:
        """Replace the file, atomically."""
        records_at(self.folder).put(CURRENT, json.dumps(asdict(address), indent=2))


class AnswerPointer:
    """Points readers to one view's answer; the caller has the view's lock."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._file = PointerFile(store.folder)
        self._plain = PlainAnswer(store)
        self._sql_query: str | None = None  # the query of our SQL view, None if there is none

    def begin(self, *, rebuild: bool = False) -> None:
        """Check that the SQL name is free or ours, then point readers, in case a crash prevented that before.

        rebuild: leave readers where they are, since the last epoch's table may be what is damaged. Raises CatalogError.
        """
        self._plain.costs.clear()
        if self._store.publish_as:
            self._sql_query = self._read_query(self._store.publish_as)
        if not rebuild:
            self.point()

    @property
    def costs(self) -> Sequence[Cost]:
        """The cost of each plain table that was written since `begin`."""
        return tuple(self._plain.costs)

    def point(self) -> None:
        """Point readers to the last finished epoch's table; writes nothing if they are pointed there already."""
        address = _current_address(self._store.folder, self._store.view, self._store.publish_as)
        before = self._file.read()
        if address is None:
            return
        if before is not None and before.publish_as and not is_same_name(before.publish_as, address.publish_as):
            self._drop_sql_view(before.publish_as)
            self._sql_query = self._read_query(address.publish_as) if address.publish_as else None
        if address.publish_as and before is not None and before.plain and before.columns != address.columns:
            self._write_sql_view(address, address.publish_as)  # the plain table is to lose columns that it selects
        is_same = before is not None and _has_same_answer(self._store, address, before)
        address = self._plain.publish(address, before, is_same=is_same)
        if before != address:
            since = before.since if before is not None and _is_same_table(before, address) else now()
            self._file.write(replace(address, since=since))
        if address.publish_as:
            self._write_sql_view(address, address.publish_as)
        self._plain.retire(address)

    def drop_sql_views(self) -> None:
        """Drop the SQL views of a view that is being dropped; raises CatalogError."""
        address = self._file.read()
        for name in {address.publish_as if address else None, self._store.publish_as}:
            if name:
                self._drop_sql_view(name)

    def _write_sql_view(self, address: Address, name: str) -> None:
        names = [column.name for column in address.columns]
        query = select_columns(address.path, names)
        if self._sql_query == query:
            return
        epoch = f"epoch {address.epoch} of generation {address.generation}"
        comment = (
            f"Answer of the Deltafold view {address.view} in {self._store.folder}; selects from its table since {epoch}"
        )
        properties = {OWNER: self._owner, VIEW_PROPERTY: address.view}
        properties |= {"deltafold.generation": str(address.generation), "deltafold.epoch": str(address.epoch)}
        about = {"view": address.view, "generation": address.generation, "epoch": address.epoch, "as": name}
        try:
            with log_work("publish", about):
                self._sql_view(name).write(query, names, comment, properties, replace=self._sql_query is not None)
        except CatalogError as error:
            raise CatalogError(
                f"view {address.view}: it is refreshed to epoch {address.epoch}, but the SQL view {name} could not be "
                f"updated. {error}, then refresh again."
            ) from error
        self._sql_query = query

    def _drop_sql_view(self, name: str) -> None:
        """Drop a SQL view if it belongs to this view."""
        sql_view = self._sql_view(name)
        entry = sql_view.entry()
        if entry is not None and entry.properties.get(OWNER) == self._owner:
            sql_view.drop()

    def _read_query(self, name: str) -> str | None:
        """Return the query of our SQL view, None if there is none yet. Raises CatalogError if the name is taken."""
        refused = f"it cannot be published as {name}"
        try:
            entry = self._sql_view(name).entry()
            if entry is None:
                self._sql_view(name).check_database()
        except CatalogError as error:
            raise CatalogError(
                f"view {self._store.view}: {refused}. {error}, then refresh again. Nothing was written."
            ) from error
        if entry is None:
            return None
        if entry.properties.get(OWNER) == self._owner:
            return entry.text
        kind = "view" if entry.is_view else "table"
        owner = entry.comment if OWNER in entry.properties else f"a {kind} that Deltafold did not create"
        raise CatalogError(
            f"view {self._store.view}: {refused}, as the name is taken ({owner}). Choose another name, or drop {name}."
        )

    def _sql_view(self, name: str) -> SqlView:
        return SqlView(self._store.spark, name)

    @property
    def _owner(self) -> str:
        """The value that marks our SQL views: a digest, since Spark hides properties with words like token."""
        return _short_digest(str(self._store.folder.resolve()))


def _short_digest(text: str) -> str:
    """Return the first 32 hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def find_address(folder: Place, view: str, publish_as: str | None = None) -> Address:
    """Return the address of a view's answer, and since when it is current. Raises StateError before epoch 1."""
    if (address := _current_address(folder, view, publish_as)) is None:
        if Journal(folder / "journal").last_complete() is None:
            raise never_refreshed(view)
        raise StateError(f"view {view}: its journal has lost the columns of the answer. Refresh it to restore them.")
    written = PointerFile(folder).read()
    if written is None:
        return address
    if written.is_of(address.generation, address.epoch):
        return address.follow(written)
    if written.plain:  # an epoch is being published, or a crash prevented that: readers stay where they are
        return replace(written, path=str(folder.resolve() / written.table), publish_as=publish_as)
    return replace(address, since=written.since) if _is_same_table(written, address) else address


def _has_same_answer(store: Store, address: Address, before: Address) -> bool:
    """Return whether no epoch after an earlier one wrote the answer: each left it as it was, or was taken back."""
    if before.generation != address.generation or before.epoch >= address.epoch:
        return before.is_of(address.generation, address.epoch)
    later = [(address.generation, epoch) for epoch in range(before.epoch + 1, address.epoch + 1)]
    if not {*later} <= {*store.journal.numbers()}:
        return False
    return all(_keeps_answer(store.view, store.journal.entry(*number)) for number in later)


def _keeps_answer(view: str, event: Event) -> bool:
    """Return whether the answer after an epoch is the one before it."""
    if not isinstance(event, Finished):
        return False
    name = answer_table(view, event)
    version = event.after.get(name)
    return event.taken_back or (version is not None and version == event.intent.tables.get(name))


def _is_same_table(one: Address, other: Address) -> bool:
    """Return whether two addresses are of one table; the plain one has answers of several generations."""
    return (one.path, one.generation) == (other.path, other.generation)


def _current_address(folder: Place, view: str, publish_as: str | None = None) -> Address | None:
    """Return the address of a view's answer from its journal; needs no Spark for a local folder.

    folder: the view's own. None before the first epoch is finished, and if the recipe of its query is missing.
    """
    journal = Journal(folder / "journal")
    entry = journal.last_complete()
    recipe = None if entry is None else journal.recipe(entry.intent.fingerprint)
    if entry is None or recipe is None:
        return None
    name = answer_table(view, entry)
    table = f"g{entry.intent.generation}/{name}"
    return Address(
        view=view,
        path=str(folder.resolve() / table),
        table=table,
        version=entry.after.get(name),
        generation=entry.intent.generation,
        epoch=entry.intent.epoch,
        columns=tuple(Column(name, kind) for name, kind in recipe.columns),
        finished=entry.report.finished,
        publish_as=publish_as,
    )
