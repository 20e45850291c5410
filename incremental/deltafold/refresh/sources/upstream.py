"""Refresh the views that a view reads, so that all of them are at one version of every base source.

A refresh takes the locks of its view and of all views below it, always in the same order. It decides the version of
every base source: one per table location, whatever name each view gives it. It refreshes the views below to exactly
these versions, each in an ordinary epoch of its own, and pins the version of each view's table that its journal then
has. A base source that only a view below reads is named by its path through the views: `totals/orders`. Of the paths
below that view to one table, it counts the first alone: their number may double with each layer of views.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from deltafold.algebra.errors import SourceError, StateError
from deltafold.algebra.results.report import Report
from deltafold.algebra.wider_types import is_wider
from deltafold.lake.catalog_names import no_data
from deltafold.lake.protocol import Table, VersionedTable
from deltafold.lake.remote.remote_path import Place
from deltafold.lake.snapshot import Snapshot
from deltafold.lake.version_diff import SourceVersions
from deltafold.spark import catalyst
from deltafold.store.dependents import Reader, Readers
from deltafold.store.history import WHOLE, AnswerPin, Extent, Finished, Pin, as_complete, base_versions, clocks_of
from deltafold.store.journal import Journal
from deltafold.store.pinned_tables import is_pinned, refuse_recreated
from deltafold.store.view_store import Store
from deltafold.telemetry import now

Progress = Callable[[str], None]
Targets = Mapping[str, int]  # the requested version of each base source, by the location of its table


@dataclass(frozen=True)
class UpstreamState:
    """A finished epoch of a view below, whose answer is in the table `final`."""

    entry: Finished
    final: str
    report: Report


class Done(dict[Place, UpstreamState]):
    """The views that one run has refreshed, by folder.

    clock: the time at which the queries of the run read the clock, UTC (ISO 8601), the same for all (D-234).
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = now("microseconds")


@dataclass(frozen=True)
class UpstreamView:
    """A view that another view reads; reach: refreshes it to given versions, under its lock."""

    store: Store
    columns: tuple[str, ...]
    inputs: Inputs
    reach: Callable[[Targets, Done, Progress | None], UpstreamState]

    def find_epoch(self, pin: AnswerPin) -> Finished | None:
        """Return the epoch whose answer is pinned; None if the journal has forgotten it."""
        table = pin.place.rpartition("/")[2]
        for entry in self.store.journal.entries():
            is_there = f"g{entry.intent.generation}/{table}" == pin.place
            if isinstance(entry, Finished) and is_there and entry.after.get(table) == pin.after:
                return entry
        return None


@dataclass(frozen=True)
class Inputs:
    """The inputs of a view: tables, and views below it.

    grown: the tables whose older versions may lack fields of structs, and are read by the schema of the later version;
    types: of the columns that the query reads, by source; versions with narrower ones are read as these.
    """

    view: str
    tables: Mapping[str, VersionedTable]
    views: Mapping[str, UpstreamView] = field(default_factory=dict[str, UpstreamView])
    grown: frozenset[str] = frozenset()
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    _seen: dict[tuple[str, int], dict[str, str]] = field(
        default_factory=dict[tuple[str, int], dict[str, str]], compare=False, repr=False
    )

    @cached_property
    def chain(self) -> Mapping[Place, UpstreamView]:
        """The views below, at any depth, by folder."""
        views = dict[Place, UpstreamView]()
        for below in self.views.values():
            views |= {below.store.folder.resolve(): below, **below.inputs.chain}
        return views

    @property
    def read_views(self) -> Mapping[Place, UpstreamView]:
        """The views that the query reads itself, by folder."""
        return {below.store.folder.resolve(): below for below in self.views.values()}

    def announce(self, folder: Place) -> None:
        """Record in the views that it reads that the view in this folder pins their versions."""
        for source, below in self.views.items():
            Readers(below.store.folder).add(Reader(str(folder), source))

    def announce_chain(self, folder: Place) -> None:
        """Record the same in every view below, for its readers too."""
        for reader, inputs in {folder: self, **{path: below.inputs for path, below in self.chain.items()}}.items():
            inputs.announce(reader)

    @cached_property
    def bases(self) -> Mapping[str, VersionedTable]:
        """The base tables, which no view writes, at any depth, by their path through the views."""
        nested = [(name, below.inputs.exported) for name, below in self.views.items()]
        return dict(self.tables) | {
            f"{name}/{source_path}": table for name, tables in nested for source_path, table in tables.items()
        }

    @cached_property
    def exported(self) -> Mapping[str, VersionedTable]:
        """The base tables by the paths that a view above extends: its own names, and of others the first path alone."""
        first = {location: source_path for source_path, location in reversed([*self.places.items()])}
        return {
            source_path: table
            for source_path, table in self.bases.items()
            if source_path in self.tables or first[self.places[source_path]] == source_path
        }

    @cached_property
    def places(self) -> Mapping[str, str]:
        """The location of each base table, looked up once."""
        nested = [(name, below.inputs) for name, below in self.views.items()]
        places = {name: table.place for name, table in self.tables.items()}
        return places | {
            f"{name}/{source_path}": below.places[source_path]
            for name, below in nested
            for source_path in below.exported
        }

    @property
    def located(self) -> Mapping[str, VersionedTable]:
        """The base tables by their location."""
        return {self.places[source_path]: table for source_path, table in self.bases.items()}

    def of(self, pins: Mapping[str, Pin], extent: Extent = WHOLE) -> Mapping[str, SourceVersions]:
        """Return the versions that an epoch reads, by source."""
        read = {name: pin for name, pin in pins.items() if name in self.tables or name in self.views}
        return {name: self._versions(name, pin, extent) for name, pin in read.items()}

    def _versions(self, name: str, pin: Pin, extent: Extent) -> SourceVersions:
        """Return the versions of a source in an epoch, all with the types of today."""
        if name in self.views:
            # of a pin without a place, the source was a table then: no table of the view has its id
            place, place_before = (pin.place, pin.place_before) if isinstance(pin, AnswerPin) else ("", "")
            table = self._table(name, place)
            before = table if place == place_before else self._table(name, place_before)
            after = Snapshot(table, pin.after, columns=self.views[name].columns)
        else:
            before = table = self.tables[name]
            after = Snapshot(table, pin.after, read_as=pin.after if name in self.grown else None)
        read = self.types.get(name, {})
        there = [self._types_if_readable(table, version) for version in (pin.after, *extent.list_passed(name))]
        there.append(self._types_before(before, table, pin))
        if any(types.get(column, type_) != type_ for types in there for column, type_ in read.items()):
            after = replace(after, types=read)
        return SourceVersions(None if pin.before is None else replace(after, table=before, version=pin.before), after)

    def targets(self, versions: Mapping[str, int], read: Collection[str]) -> Targets:
        """Return the target version of every base source: the given one, or the latest; read: those of the last epoch.

        Raises SourceError for a version that does not exist, and for a source without a table.
        """
        bases, places, asked = self.bases, self.places, self.locate(versions)
        latest = {location: table.version() for location, table in self.located.items()}
        for source_path, location in places.items():
            last = latest[location]
            if last is None:
                raise SourceError(no_data(source_path, bases[source_path], was_read=source_path in read))
            if not 0 <= asked.setdefault(location, last) <= last:
                raise SourceError(
                    f"source {source_path} has no version {asked[location]}: its latest is {last}. "
                    "Choose that, or an earlier one."
                )
        return asked

    def check_targets(self, targets: Targets, read: Collection[str]) -> None:
        """Raise SourceError for a base source of which a pipeline has no version; read: those of the last epoch."""
        for source_path, location in self.places.items():
            if location in targets:
                continue
            table = self.bases[source_path]
            if table.version() is None:
                raise SourceError(no_data(source_path, table, was_read=source_path in read))
            raise SourceError(f"source {source_path}: it could not be read when the run began. Refresh again.")

    def locate(self, versions: Mapping[str, int]) -> dict[str, int]:
        """Return versions of base sources by the location of the table; raises SourceError for two of one table."""
        asked: dict[str, int] = {}
        for name, version in versions.items():
            location = self._place(name)
            if asked.setdefault(location, version) != version:
                raise SourceError(
                    f"source {name}: requested at two versions, {asked[location]} and {version}. Give one."
                )
        return asked

    def reach(self, targets: Targets, done: Done, progress: Progress | None) -> dict[str, UpstreamState]:
        """Refresh every view below to these versions, by source; done: views that are already refreshed."""
        return {
            name: below.reach(targets, done, prefix_progress(below, progress)) for name, below in self.views.items()
        }

    def pin(self, name: str, last: Pin | None, targets: Targets, reached: Mapping[str, UpstreamState]) -> Pin:
        """Return the pin of a source in the next epoch; last: its pin in the last epoch, if that is continued."""
        before = None if last is None else last.after
        if name not in self.views:
            table = self.tables[name]
            if last is not None and not is_pinned(last, table):
                raise refuse_recreated(self.view, name, table)
            target = targets[self.places[name]]
            pinned_commit = last.commit if last is not None and last.after == target else ""
            return Pin(before, target, table.metadata(target).id, commit=pinned_commit or table.commit_id(target))
        entry, final = reached[name].entry, reached[name].final
        version = entry.after.get(final)
        place = f"g{entry.intent.generation}/{final}"
        table = self._table(name, place)
        if version is None:
            raise StateError(
                f"view {entry.intent.view}: its journal does not record the version of its table. Rebuild it."
            )
        exported = self.views[name].inputs.exported
        bases = {path: v for path, v in base_versions(entry.intent.sources).items() if path in exported}
        pin = AnswerPin(before, version, table.metadata().id, place=place, place_before=place, bases=bases)
        pin = replace(pin, clocks=clocks_of(entry.intent))
        if last is None or last.identity == pin.identity:
            return pin
        if not isinstance(last, AnswerPin) or last.place == place:
            raise refuse_recreated(self.view, name, table)
        old = self._table(name, last.place)
        if old.version() is None or old.metadata().id != last.identity:
            raise refuse_recreated(self.view, name, old)
        return replace(pin, place_before=last.place)

    def check(self, pins: Mapping[str, Pin]) -> None:
        """Raise SourceError if a table is not the one whose version was pinned."""
        sources = self.of(pins)
        for name, pin in pins.items():
            before, table = sources[name].before, sources[name].after.table
            if name in self.tables and table.version() is None:
                raise SourceError(no_data(name, table, was_read=True))
            is_lost = before is not None and before.table.version() is None
            if is_lost or table.version() is None or not is_pinned(pin, table):
                raise refuse_recreated(self.view, name, table)

    def find_damage(self, targets: Targets | None) -> SourceError | None:
        """Return the error for a table whose version to reach cannot be read, so that a rebuild would be in vain.

        targets: the versions to reach; None if they are the latest.
        """
        for name, table in self.tables.items():
            version = table.version() if targets is None else targets[self.places[name]]
            if version is None:
                continue
            try:
                path = table.find_missing(version)
            except SourceError:
                return SourceError(
                    f"source {name} at {table.label}: its version {version}, which a rebuild would read, too, can no "
                    "longer be read (its log was cleaned up). Refresh to a later version."
                )
            if path is not None:
                return SourceError(
                    f"source {name} at {table.label}: its version {version} lacks the file {path}, which a rebuild "
                    "would read, too. Bring the file back, or write a version that does not need it (RESTORE TABLE to "
                    "an earlier version, or the table anew), and refresh again."
                )
        return None

    def check_columns(self, pins: Mapping[str, Pin]) -> None:
        """Raise SourceError for versions that lack a column that the query reads, or have it with another type.

        A narrower type has the same values.
        """
        for name in [name for name in pins if name in self.tables]:  # a view below keeps its columns with its query
            table, pin, read = self.tables[name], pins[name], self.types.get(name, {})
            there = self._types_of(table, pin.after)
            for column, wanted in read.items():
                if there.get(column) != wanted and not is_wider(there.get(column, ""), wanted):
                    actual = f"{column} as {there[column]}" if column in there else f"no column {column}"
                    raise SourceError(
                        f"source {name}: {actual} at version {pin.after}, where the query of view {self.view} reads "
                        f"{column} as {wanted}. Refresh to a version with this type, or rebuild the view."
                    )

    def find_narrowed(self, last: Mapping[str, Pin]) -> tuple[str, ...]:
        """Return the columns with a narrower type than at the last pinned versions, one a line.

        The fingerprint is the same where a type was widened and narrowed again.
        """
        lines = list[str]()
        for name in [name for name in last if name in self.tables]:
            before, read = self._types_if_readable(self.tables[name], last[name].after), self.types.get(name, {})
            lines += [
                f"column {column} of source {name} changed from {before[column]} to {wanted}"
                for column, wanted in read.items()
                if is_wider(wanted, before.get(column, wanted))
            ]
        return tuple(lines)

    def _types_before(self, before: VersionedTable, table: VersionedTable, pin: Pin) -> dict[str, str]:
        """Return the types of the version before; empty if there is none, or it is the same."""
        if pin.before is None or (pin.before == pin.after and before is table):
            return {}
        return self._types_if_readable(before, pin.before)

    def _types_if_readable(self, table: VersionedTable, version: int) -> dict[str, str]:
        """Return the types of a version; empty if it cannot be read any more.

        Whatever reads its rows raises the error, and a recompute needs no version before.
        """
        try:
            return self._types_of(table, version)
        except SourceError:
            return {}

    def _types_of(self, table: VersionedTable, version: int) -> dict[str, str]:
        """Return the types of the columns of a version."""
        if (table.path, version) not in self._seen:
            schema = table.schema(None if version == table.version() else version)
            self._seen[table.path, version] = catalyst.types_of(schema)
        return self._seen[table.path, version]

    def is_past(self, pins: Mapping[str, Pin], targets: Targets) -> bool:
        """Return whether an epoch has base sources at later versions than requested.

        Versions of a table that was replaced since are not comparable: the epoch has to go on to those of today.
        """
        consumed = base_versions(pins)
        later = any(consumed.get(path, 0) > targets[location] for path, location in self.places.items())
        return later and self._has_same_bases(pins)

    def _has_same_bases(self, pins: Mapping[str, Pin]) -> bool:
        """Return whether the base tables of an epoch, at any depth, are those of today, as far as journals know."""
        for name, pin in pins.items():
            if name in self.tables and not is_pinned(pin, self.tables[name]):
                return False
            below = self.views.get(name)
            epoch = None if below is None or not isinstance(pin, AnswerPin) else below.find_epoch(pin)
            if below is not None and epoch is not None and not below.inputs._has_same_bases(epoch.intent.sources):
                return False
        return True

    def earlier(self, journal: Journal, targets: Targets, last: Finished) -> Finished:
        """Return the newest epoch of the last one's generation that ended at exactly these versions."""
        wanted = {source_path: targets[location] for source_path, location in self.places.items()}
        for entry in reversed(journal.entries()):
            same = entry.intent.generation == last.intent.generation and as_complete(entry)
            pins = entry.intent.sources
            if same and wanted.items() <= base_versions(pins).items() and self._has_same_bases(pins):
                self.check(same.intent.sources)
                return same
        current = ", ".join(
            f"{source_path} {version}" for source_path, version in base_versions(last.intent.sources).items()
        )
        asked = ", ".join(f"{source_path} {version}" for source_path, version in wanted.items())
        raise SourceError(
            f"view {self.view}: it is at {current} and has no epoch at {asked}, which a view that reads it "
            f"requests. Request the versions of one of its epochs, or refresh {self.view} to these versions first."
        )

    def _place(self, name: str) -> str:
        """Return the location of a base source by its name or its path through the views."""
        places = self.places
        if (location := self.find_place(name)) is not None:
            return location
        if name in self.views:
            raise SourceError(
                f"view {self.view}: source {name} is a view. Give the versions of what it reads "
                f"({', '.join(self.views[name].inputs.bases)})."
            )
        matches = {source_path: place for source_path, place in places.items() if source_path.endswith(f"/{name}")}
        if not matches:
            raise SourceError(f"view {self.view}: it reads no source {name!r}. Choose one of: {', '.join(places)}.")
        if len(set(matches.values())) > 1:
            raise SourceError(f"view {self.view}: it reads several sources {name}. Say which, {' or '.join(matches)}.")
        return next(iter(matches.values()))

    def find_place(self, source_path: str) -> str | None:
        """Return the location of a base source by its name or any path to it; None if there is none."""
        if source_path in self.places:
            return self.places[source_path]
        name, _, rest = source_path.partition("/")
        return self.views[name].inputs.find_place(rest) if rest and name in self.views else None

    def _table(self, name: str, place: str) -> Table:
        """Return one of the tables of a view below."""
        return self.views[name].store.table_at(place)


def prefix_progress(below: UpstreamView, progress: Progress | None) -> Progress | None:
    """Prefix the steps of a progress callback with the name of the view below."""
    return None if progress is None else lambda step: progress(f"{below.store.view}: {step}")
