"""Read and write the journal of a view: one event (history.py) for each epoch.

One small JSON file per epoch, written before its first table (`intent`) and completed by the report after its last
commit. If the report is missing, not the journal but the view's own commit decides whether an epoch is finished.
Beside the epochs there is a recipe file for each query that a state was built from, by its fingerprint.

| event | in the file |
| --- | --- |
| `Begun` | an intent without report |
| `Copying` | the same with `rearranges` |
| `Failed` | the same with `takes_back` |
| `Finished` | an intent with its report and the versions of the tables `after` |
| `AnswerPin`, `Chunk`, `Rest` | `place` of a pin; `part` of an intent, with `start`, and `via`, of its pins |
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from deltafold.algebra.errors import StateError
from deltafold.algebra.recipe import Recipe
from deltafold.algebra.results.report import REBUCKETED, Report
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import Place
from deltafold.store.history import (
    WHOLE,
    AnswerPin,
    Begun,
    Chunk,
    Copying,
    Event,
    Extent,
    Failed,
    Finished,
    History,
    Intent,
    Pin,
    Rest,
    as_complete,
    number_of,
)

JOURNAL = "journal"
FORMAT = 1  # version of journal and state tables; a newer one is refused


def never_refreshed(view: str) -> StateError:
    """Return the error for a view that has no answer yet."""
    return StateError(f"view {view}: no finished epoch yet. {refresh_first(view)}.")


def refresh_first(view: str) -> str:
    """Return the advice to refresh a view; a pipeline has the name of its view."""
    return f"Refresh it first: view.refresh(), or `deltafold run {view}`"


class Journal:
    """The epochs of one view, in a folder."""

    def __init__(self, folder: Place) -> None:
        self.folder = folder
        self._records = records_at(folder)

    def last(self) -> Event | None:
        """Return the newest epoch of the newest generation. Raises StorageError if the journal may not be read."""
        files = self._files()
        return self._read(files[-1]) if files else None

    def forget_copy(self) -> Event | None:
        """Return the newest epoch; an unfinished copy into other buckets is removed first, since its original stays."""
        last = self.last()
        if not isinstance(last, Copying):
            return last
        self.remove(last.intent)
        return self.last()

    def entries(self, newest: int = 0) -> tuple[Event, ...]:
        """Return all epochs, or the newest few, oldest first."""
        return tuple(self._read(file) for file in self._files()[-newest:])

    def numbers(self) -> tuple[tuple[int, int], ...]:
        """Return generation and number of every epoch, oldest first; reads no file."""
        names = (file.removesuffix(".json").split("-") for file in self._files())
        return tuple((int(generation[1:]), int(epoch[1:])) for generation, epoch in names)

    def entry(self, generation: int, epoch: int) -> Event:
        """Return one epoch."""
        return self._read(_file_of(generation, epoch))

    def last_complete(self) -> Finished | None:
        """Return the newest epoch that is finished and has reached its pinned versions."""
        return next(filter(None, map(as_complete, map(self._read, reversed(self._files())))), None)

    def history(self, earlier: History | None = None) -> History:
        """Return the history of the view: one file is read, unless its newest epoch is not complete.

        earlier: one that was read before; of its epochs only the newest can have changed.
        """
        unchanged = {number_of(event): event for event in (earlier.events[:-1] if earlier else ())}
        numbers = self.numbers()
        events = list[Event]()
        for number in reversed(numbers):
            events.insert(0, unchanged.get(number) or self.entry(*number))
            if as_complete(events[0]):
                break
        return History(tuple(events), numbers)

    def begin(self, event: Begun | Copying | Failed) -> None:
        """Write an unfinished epoch, atomically."""
        self._write(_file_of(*number_of(event)), _content_of(event))

    def finish(self, event: Finished) -> None:
        """Complete an epoch with its report and the versions of its tables after it."""
        self._write(_file_of(*number_of(event)), _content_of(event))

    def remove(self, intent: Intent) -> None:
        """Remove the entry of an epoch that changed nothing."""
        self._records.delete(_file_of(intent.generation, intent.epoch))

    def record(self, recipe: Recipe) -> None:
        """Record the recipe of a fingerprint, if it is not recorded yet."""
        if self.recipe(recipe.fingerprint) is None:
            self._write(_recipe_file(recipe.fingerprint), dataclasses.asdict(recipe))

    def recipe(self, fingerprint: str) -> Recipe | None:
        """Return the recipe from which a state of this fingerprint was built; None if unknown or unreadable."""
        try:
            return Recipe.from_json(self._records.get(_recipe_file(fingerprint)))
        except (OSError, ValueError, TypeError):
            return None

    def last_recipe(self) -> Recipe | None:
        """Return the recipe of the state of the last epoch."""
        last = self.last()
        return None if last is None else self.recipe(last.intent.fingerprint)

    def prune(self, keep: int) -> int:
        """Remove all but the newest `keep` entries, or none if none of these is finished; returns how many."""
        files = self._files()
        old = files[: max(0, len(files) - keep)]
        if not any(isinstance(self._read(file), Finished) for file in files[len(old) :]):
            return 0
        for file in old:
            self._records.erase(file)
        return len(old)

    def _files(self) -> list[str]:
        return self._records.names("g*-e*.json")

    def _write(self, file: str, content: dict[str, Any]) -> None:
        self._records.create()
        self._records.put(file, json.dumps(content, sort_keys=True), keep=True)

    def _read(self, file: str) -> Event:
        try:
            return _event_of(json.loads(self._records.get(file)))
        except _NewerError as error:
            raise StateError(
                f"{self.folder / file}: it was written by a newer Deltafold than this one. "
                "Use that one, or a later one."
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(
                f"journal file {self.folder / file}: it is damaged ({error}). Remove it and rebuild the view."
            ) from error


def _file_of(generation: int, epoch: int) -> str:
    return f"g{generation:05d}-e{epoch:09d}.json"


def _recipe_file(fingerprint: str) -> str:
    return f"query-{fingerprint}.json"


Record = TypeVar("Record", Pin, Chunk, Intent)


class _NewerError(Exception):
    """A file has what this release does not know."""


def intent_json(intent: Intent) -> str:
    """Return an epoch at its start as one line of JSON, for the commits of its tables."""
    return json.dumps(_record_of(intent), sort_keys=True)


def _content_of(event: Event) -> dict[str, Any]:
    """Return the content of the file of an event."""
    record = _record_of(event.intent)
    if isinstance(event, Finished):
        record["rearranges"] = event.report.verdict == REBUCKETED
        return {"intent": record, "report": dataclasses.asdict(event.report), "after": event.after}
    record |= {"rearranges": isinstance(event, Copying), "takes_back": isinstance(event, Failed)}
    return {"intent": record}


def _record_of(intent: Intent) -> dict[str, Any]:
    """Return the intent as the file has it."""
    extent = intent.extent
    record = {name: value for name, value in vars(intent).items() if name != "extent" and (name != "clock" or value)}
    record |= {"format": FORMAT, "part": None, "rearranges": False, "takes_back": False}
    record["sources"] = {name: _pin_record(pin, extent, name) for name, pin in intent.sources.items()}
    if isinstance(extent, Chunk):
        record["part"] = {name: getattr(extent, name) for name in ("number", "of", "bytes", "whole")}
    return record


def _pin_record(pin: Pin, extent: Extent, source: str) -> dict[str, Any]:
    """Return a pin as the file has it: with the fields of all kinds."""
    record: dict[str, Any] = {"place": None, "bases": dict[str, int](), **vars(pin)}
    before = record.pop("place_before", None)
    if not record.get("clocks", True):  # releases that bound no clock read the file, too
        del record["clocks"]
    record["left"] = None if before == record["place"] else before
    record["start"] = extent.starts.get(source) if isinstance(extent, Chunk) else None
    record["via"] = extent.ends.get(source) if isinstance(extent, Rest) else None
    return record


def _event_of(content: dict[str, Any]) -> Event:
    """Return the event in the content of a file; raises _NewerError for fields that this release does not know."""
    record: dict[str, Any] = content["intent"]
    if record.pop("format", FORMAT) > FORMAT:
        raise _NewerError
    rearranges, takes_back = record.pop("rearranges", False), record.pop("takes_back", False)
    part, pins = record.pop("part", None), record.pop("sources")
    passed = {name: (pin.pop("start", None), pin.pop("via", None)) for name, pin in pins.items()}
    sources = {name: _pin_of(pin) for name, pin in pins.items()}
    intent = _build(Intent, record | {"sources": sources, "extent": _extent_of(part, passed)})
    if (report := content.get("report")) is not None:
        return Finished(intent, Report.from_json(json.dumps(report)), content.get("after") or {})
    if takes_back:
        return Failed(intent)
    return Copying(intent) if rearranges else Begun(intent)


def _pin_of(record: dict[str, Any]) -> Pin:
    """Return the pin in a record."""
    place, before = record.pop("place", None), record.pop("left", None)
    if place is not None:
        return _build(AnswerPin, record | {"place": place, "place_before": before or place})
    record.pop("bases", None)
    return _build(Pin, record)


def _extent_of(part: dict[str, Any] | None, passed: Mapping[str, tuple[int | None, int | None]]) -> Extent:
    """Return the extent in a record; passed: `start` and `via` of its pins."""
    if part is None:
        return WHOLE
    starts = {name: start for name, (start, _) in passed.items()}
    ends = {name: end for name, (_, end) in passed.items() if end is not None}
    fields = {"whole": True} | part | {"starts": starts}  # earlier releases did not have `whole`
    return _build(Rest, fields | {"ends": ends}) if ends else _build(Chunk, fields)


def _build(kind: type[Record], fields: dict[str, Any]) -> Record:
    """Return a record of a kind; raises _NewerError for fields that it does not have."""
    if set(fields) - {field.name for field in dataclasses.fields(kind)}:
        raise _NewerError
    return kind(**fields)
