"""Point readers to the table with a view's current answer: a file beside the generations, and a SQL view.

When an epoch makes another table the current one, both are written after it is finished, the file first; after a crash,
the next refresh or `maintain` writes them before anything else. The file has the SQL view's name before the SQL view
exists, so that it is dropped when the view is dropped or published under another name.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from deltafold.algebra.errors import CatalogError, StateError
from deltafold.algebra.plan import Column
from deltafold.algebra.results.address import Address, is_same_name
from deltafold.lake.durable import write_durably
from deltafold.lake.remote.remote_path import Place
from deltafold.lake.sql_view import VIEW_PROPERTY, SqlView, select_columns
from deltafold.store.journal import Journal, never_refreshed
from deltafold.store.snapshot import answer_table
from deltafold.store.view_store import Store
from deltafold.telemetry.clock import now
from deltafold.telemetry.events import log_work

OWNER = "deltafold.owner"


@dataclass(frozen=True)
class PointerFile:
    """The file `current.json` of a view, in its folder."""

    folder: Place

    def read(self) -> Address | None:
        """Return the address in the file; None if the file is missing or damaged."""
        try:
            return Address.from_json(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, address: Address) -> None:
        """Replace the file, atomically."""
        write_durably(self._path, json.dumps(asdict(address), indent=2))

    @property
    def _path(self) -> Place:
        return self.folder / "current.json"


class AnswerPointer:
    """Points readers to one view's answer; the caller has the view's lock."""

    def __init__(self, store: Store) -> None:
        self._store, self._file = store, PointerFile(store.folder)
        self._sql_query: str | None = None  # the query of our SQL view, None if there is none

    def begin(self) -> None:
        """Check that the SQL name is free or ours, then point readers, as a crash may require; raises CatalogError."""
        if self._store.publish_as:
            self._sql_query = self._read_query(self._store.publish_as)
        self.point()

    def point(self) -> None:
        """Point readers to the last finished epoch's table; writes nothing if they are pointed there already."""
        address, known = (
            _current_address(self._store.folder, self._store.view, self._store.publish_as),
            self._file.read(),
        )
        if address is None:
            return
        if known is not None and known.publish_as and not is_same_name(known.publish_as, address.publish_as):
            self._drop_sql_view(known.publish_as)
            self._sql_query = self._read_query(address.publish_as) if address.publish_as else None
        if known is None or known != address:
            moved = known is None or known.path != address.path
            self._file.write(replace(address, since=now() if moved or known is None else known.since))
        if address.publish_as:
            self._write_sql_view(address, address.publish_as)

    def drop_sql_views(self) -> None:
        """Drop the SQL views of a view that is being dropped; raises CatalogError."""
        known = self._file.read()
        for name in {known.publish_as if known else None, self._store.publish_as}:
            if name:
                self._drop_sql_view(name)

    def _write_sql_view(self, address: Address, name: str) -> None:
        names = [column.name for column in address.columns]
        shown = select_columns(address.path, names)
        if self._sql_query == shown:
            return
        place = f"epoch {address.epoch} of generation {address.generation}"
        comment = (
            f"Answer of the Deltafold view {address.view} in {self._store.folder}; selects from its table since {place}"
        )
        properties = {OWNER: self._owner, VIEW_PROPERTY: address.view}
        properties |= {"deltafold.generation": str(address.generation), "deltafold.epoch": str(address.epoch)}
        about = {"view": address.view, "generation": address.generation, "epoch": address.epoch, "as": name}
        sql_view, replaces = self._sql_view(name), self._sql_query is not None
        try:
            with log_work("publish", about):
                sql_view.write(shown, names, comment, properties, replace=replaces)
        except CatalogError as error:
            raise CatalogError(
                f"view {address.view}: it is refreshed to epoch {address.epoch}, but the SQL view {name} could not be "
                f"updated. {error}, then refresh again."
            ) from error
        self._sql_query = shown

    def _drop_sql_view(self, name: str) -> None:
        """Drop a SQL view if it belongs to this view."""
        sql_view = self._sql_view(name)
        found = sql_view.entry()
        if found is not None and found.properties.get(OWNER) == self._owner:
            sql_view.drop()

    def _read_query(self, name: str) -> str | None:
        """Return the query of our SQL view, None if there is none yet; raises CatalogError if the name is taken."""
        refused = f"it cannot be published as {name}"
        try:
            if (found := self._sql_view(name).entry()) is None:
                self._sql_view(name).check_database()
        except CatalogError as error:
            raise CatalogError(
                f"view {self._store.view}: {refused}. {error}, then refresh again. Nothing was written."
            ) from error
        if found is None or found.properties.get(OWNER) == self._owner:
            return None if found is None else found.text
        kind = "view" if found.is_view else "table"
        whose = found.comment if OWNER in found.properties else f"a {kind} that Deltafold did not create"
        raise CatalogError(
            f"view {self._store.view}: {refused}, as the name is taken ({whose}). Choose another name, or drop {name}."
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
    """Return the address of a view's answer and the time since when it is current; raises StateError before epoch 1."""
    if (address := _current_address(folder, view, publish_as)) is None:
        if Journal(folder / "journal").last_complete() is None:
            raise never_refreshed(view)
        raise StateError(f"view {view}: its journal has lost the columns of the answer. Refresh it to restore them.")
    known = PointerFile(folder).read()
    return replace(address, since=known.since) if known is not None and known.path == address.path else address


def _current_address(folder: Place, view: str, publish_as: str | None = None) -> Address | None:
    """Return the address of a view's answer from its journal; needs no Spark for a local folder.

    folder: the view's own. None before the first epoch is finished, and if the recipe of its query is missing.
    """
    journal = Journal(folder / "journal")
    entry = journal.last_complete()
    recipe = None if entry is None else journal.recipe(entry.intent.fingerprint)
    if entry is None or entry.report is None or recipe is None:
        return None
    name, generation = answer_table(view, entry), entry.intent.generation
    table = f"g{generation}/{name}"
    return Address(
        view=view,
        path=str(folder.resolve() / table),
        table=table,
        version=(entry.after or {}).get(name),
        generation=generation,
        epoch=entry.intent.epoch,
        columns=tuple(Column(name, kind) for name, kind in recipe.columns),
        finished=entry.report.finished,
        publish_as=publish_as,
    )
