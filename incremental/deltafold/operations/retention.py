"""Find the versions of tables that must stay readable, and for whom, from journals and records of readers (D-023).

| kept | for |
| --- | --- |
| a view's own tables as after its last epoch | readers that pin it next |
| a view's tables as the last and any unfinished epoch of a view above pins them | its next refresh |
| a view's tables as a branch was made of them | the branch, until it is dropped |
| a landed source at the versions of these, or of a view above at any height | their next refresh, and `verify` |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import Place, place_of
from deltafold.store.answer_pointer import PointerFile
from deltafold.store.dependents import Readers
from deltafold.store.history import AnswerPin, Event, Finished, as_complete, base_versions
from deltafold.store.journal import Journal


@dataclass(frozen=True)
class Need:
    """A version of a table that must stay readable, and for whom."""

    table: str
    version: int
    who: str


def needs_of_view(folder: Place) -> Iterator[Need]:
    """Return the versions of a view's own tables that its journal, readers and branches need; table: `g1/state_1`."""
    for entry in _entries_with_pins(Journal(folder / "journal")):
        for name, version in entry.after.items() if isinstance(entry, Finished) else ():
            if version is not None:
                yield Need(f"g{entry.intent.generation}/{name}", version, "its last epoch")
    for reader in Readers(folder).all():
        who = place_of(reader.folder).name
        for name, version in reader.tables.items():
            if records_at(place_of(reader.folder) / "g1").exists():
                yield Need(name, version, f"branch {who}")
        for entry in _entries_with_pins(reader.journal):
            pin = entry.intent.sources.get(reader.source)
            if isinstance(pin, AnswerPin):
                yield Need(pin.place, pin.after, f"view {who}")
                for version in entry.intent.extent.list_passed(reader.source):
                    yield Need(pin.place_before, version, f"view {who}")
                if not isinstance(entry, Finished) and pin.before is not None:
                    yield Need(pin.place_before, pin.before, f"view {who}")


def needs_of_sources(views: Place) -> Iterator[Need]:
    """Return the versions of a warehouse's sources that its views, and all views above, need; views: their folder."""
    for view in records_at(views).folders("[!.]*"):
        for who, versions in pinned_base_versions(views / view):
            for source, version in versions.items():
                if "/" not in source:
                    yield Need(source, version, f"view {who}")


def pinned_base_versions(folder: Place) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yield the versions of base sources that a view or one above it may still read.

    Each with the name of the reader; the sources are named by their path from the view in `folder`.
    """
    for entry in _entries_with_pins(Journal(folder / "journal")):
        yield folder.name, base_versions(entry.intent.sources)
        tables = {name: pin for name, pin in entry.intent.sources.items() if not isinstance(pin, AnswerPin)}
        if not isinstance(entry, Finished):
            yield folder.name, {name: pin.before for name, pin in tables.items() if pin.before is not None}
        for name in tables:
            yield from ((folder.name, {name: version}) for version in entry.intent.extent.list_passed(name))
    for reader in Readers(folder).all():
        for who, versions in pinned_base_versions(place_of(reader.folder)):
            if reader.source:
                mine = f"{reader.source}/"
                versions = {path.removeprefix(mine): v for path, v in versions.items() if path.startswith(mine)}
            yield who, versions


def superseded_since(folder: Place, generation: int) -> str | None:
    """Return the time when readers were pointed to a later generation of a view; None if they were not.

    For the current generation it is in the pointer file: after a crash, readers are pointed there later than its first
    epoch finished, and the journal may have been pruned of that epoch.
    """
    began: dict[int, str] = {}
    for entry in Journal(folder / "journal").entries():
        if done := as_complete(entry):
            began.setdefault(done.intent.generation, done.report.finished)
    if pointer := PointerFile(folder).read():
        began[pointer.generation] = pointer.since
    return min((since for number, since in began.items() if number > generation), default=None)


def _entries_with_pins(journal: Journal) -> list[Event]:
    """Return the last complete epoch and the entries begun after it, whose pins must stay readable."""
    entries = journal.entries()
    last = max((number for number, entry in enumerate(entries) if as_complete(entry)), default=0)
    return list(entries[last:])
