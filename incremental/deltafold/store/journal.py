"""Read and write the journal of a view: the intent and the report of each epoch.

One small JSON file per epoch, written before its first table (`intent`) and completed by the report after its last
commit. If the report is missing, not the journal but the view's own commit decides whether an epoch is finished.
Beside the epochs there is a recipe file for each query that a state was built from, by its fingerprint.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from deltafold.algebra.errors import StateError
from deltafold.algebra.recipe import Recipe
from deltafold.algebra.results.report import Report
from deltafold.lake.durable import make_private, write_durably
from deltafold.lake.remote.remote_path import Place, RemotePath
from deltafold.spark.java_errors import storage_errors

FORMAT = 1  # version of journal and state tables; a newer one is refused


def never_refreshed(view: str) -> StateError:
    """Return the error for a view that has no answer yet."""
    return StateError(f"view {view}: no finished epoch yet. {refresh_first(view)}.")


def refresh_first(view: str) -> str:
    """Return the advice to refresh a view; a pipeline has the name of its view."""
    return f"Refresh it first: view.refresh(), or `deltafold run {view}`"


@dataclass(frozen=True)
class Pin:
    """A source in an epoch: its versions before and after.

    identity: Delta's id of the table (at `after` for a base table; earlier releases recorded that of the latest
    version); commit: Delta's id of the commit that made `after`. If the source is a view: `place`, its table at `after`
    below the view's folder; `left`, its table at `before` if the view was rebuilt in between; `bases`, the versions of
    the base sources from which its answer at `after` is computed. For a change in chunks: `start`, the version before
    the first chunk; `via`, if the rest of the chunks is read by one epoch, the version that they were to reach.
    """

    before: int | None
    after: int
    identity: str
    _: KW_ONLY
    place: str | None = None
    left: str | None = None
    bases: Mapping[str, int] = field(default_factory=dict[str, int])
    start: int | None = None
    commit: str = ""
    via: int | None = None

    @property
    def passed(self) -> list[int]:
        """The versions besides `after` that a change in chunks reads."""
        return [version for version in (self.start, self.via) if version is not None]


@dataclass(frozen=True)
class Chunk:
    """One of several epochs that together reach the pinned versions: its number, from 1, their count, their bytes.

    whole: a file with another deletion vector counts with its whole size, as in chunks of earlier releases.
    """

    number: int
    of: int
    bytes: int
    whole: bool = False

    @property
    def last(self) -> bool:
        """Whether this chunk reaches the pinned versions."""
        return self.number == self.of


@dataclass(frozen=True, kw_only=True)
class Intent:
    """An epoch at its start: everything that a second attempt needs to write exactly the same.

    constraints: the declared ones that its sources fulfil after it; relied: those that they fulfilled before it too;
    states: for each state a digest of its plan, then its stored columns (Layout.merged); rearranges: it only copies the
    last epoch into other buckets; takes_back: it only restores the tables that a failed epoch of this number wrote;
    lost: why it begins a generation, if a source lost rows that the last epoch read; losses: the number of such epochs.
    """

    view: str
    generation: int
    epoch: int
    fingerprint: str
    buckets: int
    sources: dict[str, Pin]
    tables: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    format: int = FORMAT
    mode: str = "incremental"
    constraints: list[str] = field(default_factory=list[str])
    relied: list[str] = field(default_factory=list[str])
    part: Chunk | None = None
    states: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    rearranges: bool = False
    takes_back: bool = False
    lost: str = ""
    losses: int = 0

    @property
    def takes_rest(self) -> bool:
        """Whether it reads the rest of a change at once, after some chunks are finished."""
        return any(pin.via is not None for pin in self.sources.values())

    @property
    def arrives(self) -> bool:
        """Whether its sources reach their pinned versions, instead of a version in between."""
        return self.part is None or self.part.last

    def to_json(self) -> str:
        """Return one line of JSON with sorted keys."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Entry:
    """An epoch in the journal; report and the tables' versions `after`: None while it is unfinished."""

    intent: Intent
    report: Report | None
    after: dict[str, int | None] | None = None

    @property
    def complete(self) -> bool:
        """Whether it is finished and has reached its pinned versions."""
        return self.report is not None and self.intent.arrives


class Journal:
    """The epochs of one view, in a folder."""

    def __init__(self, folder: Place) -> None:
        self.folder = folder

    def last(self) -> Entry | None:
        """Return the newest epoch of the newest generation. Raises StorageError if the journal may not be read."""
        files = self._files()
        return self._read(files[-1]) if files else None

    def forget_copy(self) -> Entry | None:
        """Return the newest epoch; an unfinished copy into other buckets is removed first, since its original stays."""
        last = self.last()
        if last is None or last.report is not None or not last.intent.rearranges:
            return last
        self.remove(last.intent)
        return self.last()

    def entries(self, newest: int = 0) -> tuple[Entry, ...]:
        """Return all epochs, or the newest few, oldest first."""
        return tuple(self._read(file) for file in self._files()[-newest:])

    def numbers(self) -> tuple[tuple[int, int], ...]:
        """Return generation and number of every epoch, oldest first; reads no file."""
        names = (file.name.removesuffix(".json").split("-") for file in self._files())
        return tuple((int(generation[1:]), int(epoch[1:])) for generation, epoch in names)

    def entry(self, generation: int, epoch: int) -> Entry:
        """Return the entry of one epoch."""
        return self._read(self._path(generation, epoch))

    def last_complete(self) -> Entry | None:
        """Return the newest epoch that is finished and has reached its pinned versions."""
        return next((entry for entry in map(self._read, reversed(self._files())) if entry.complete), None)

    def begin(self, intent: Intent) -> None:
        """Write an intent, atomically."""
        self._write(self._path(intent.generation, intent.epoch), {"intent": dataclasses.asdict(intent)})

    def finish(self, intent: Intent, report: Report, after: dict[str, int | None] | None) -> None:
        """Complete an epoch with its report and the versions of its tables after it."""
        content = {"intent": dataclasses.asdict(intent), "report": dataclasses.asdict(report), "after": after}
        self._write(self._path(intent.generation, intent.epoch), content)

    def remove(self, intent: Intent) -> None:
        """Remove the entry of an epoch that changed nothing."""
        self._path(intent.generation, intent.epoch).unlink(missing_ok=True)

    def record(self, recipe: Recipe) -> None:
        """Record the recipe of a fingerprint, if it is not recorded yet."""
        if self.recipe(recipe.fingerprint) is None:
            self._write(self._recipe_path(recipe.fingerprint), dataclasses.asdict(recipe))

    def recipe(self, fingerprint: str) -> Recipe | None:
        """Return the recipe from which a state of this fingerprint was built; None if unknown or unreadable."""
        try:
            return Recipe.from_json(self._recipe_path(fingerprint).read_text())
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
        if all(self._read(file).report is None for file in files[len(old) :]):
            return 0
        for file in old:
            if isinstance(file, RemotePath):
                file.erase()
            else:
                file.unlink(missing_ok=True)
        return len(old)

    def _path(self, generation: int, epoch: int) -> Place:
        return self.folder / f"g{generation:05d}-e{epoch:09d}.json"

    def _recipe_path(self, fingerprint: str) -> Place:
        return self.folder / f"query-{fingerprint}.json"

    def _files(self) -> list[Place]:
        with storage_errors(self.folder):
            if isinstance(self.folder, Path) and self.folder.exists():
                next(self.folder.iterdir(), None)  # raises if it may not be read, for which glob returns nothing
            return sorted(self.folder.glob("g*-e*.json"), key=str)

    def _write(self, path: Place, content: dict[str, Any]) -> None:
        make_private(self.folder)
        write_durably(path, json.dumps(content, sort_keys=True), keep=True)

    def _read(self, path: Place) -> Entry:
        try:
            content = json.loads(path.read_text())
            fields = content["intent"]
            records: list[tuple[Any, Any]] = [(Intent, fields), (Chunk, fields.get("part") or {})]
            records += [(Pin, pin) for pin in fields.get("sources", {}).values()]
            if fields.get("format", 0) > FORMAT or any(_unknown_fields(kind, record) for kind, record in records):
                raise StateError(
                    f"{path}: it was written by a newer Deltafold than this one. Use that one, or a later one."
                )
            pins = {name: Pin(**pin) for name, pin in fields.pop("sources").items()}
            part = fields.pop("part", None)
            chunk = None if part is None else Chunk(**{"whole": True} | part)
            report = content.get("report")
            return Entry(
                Intent(sources=pins, part=chunk, **fields),
                None if report is None else Report.from_json(json.dumps(report)),
                content.get("after"),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(
                f"journal file {path}: it is damaged ({error}). Remove it and rebuild the view."
            ) from error


def _unknown_fields(kind: Any, record: Mapping[str, Any]) -> set[str]:
    """Return the fields of a record that this release does not have."""
    return set(record) - {field.name for field in dataclasses.fields(kind)}


def base_versions(pins: Mapping[str, Pin]) -> dict[str, int]:
    """Return the versions of all base sources of an epoch, by their path through the views."""
    versions = dict[str, int]()
    for name, pin in pins.items():
        if pin.place is None:
            versions[name] = pin.after
        else:
            versions |= {f"{name}/{source_path}": version for source_path, version in pin.bases.items()}
    return versions
