"""Notes of a report: what a refresh did, as data, from which sentences.py renders the report's sentence.

Each kind of note is a frozen dataclass, and `kind` names it in JSON. Numbers that the report has anyway are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

REUSED: Final = "reused"
"""The path of a state that another generation has, and that was not computed."""


@dataclass(frozen=True)
class EpochRan:
    """An epoch took in the whole change."""

    kind: str = field(default="ran", init=False)


@dataclass(frozen=True, kw_only=True)
class ChunksRan:
    """Epochs took in some of the chunks of a change, each one."""

    first: int
    last: int
    of: int
    kind: str = field(default="chunks", init=False)


@dataclass(frozen=True)
class SourcesUnchanged:
    """No row of a source changed since the epoch of the report."""

    kind: str = field(default="unchanged", init=False)


@dataclass(frozen=True, kw_only=True)
class ViewUnaffected:
    """Rows of the sources changed, and none of the view; within_tolerance: as its loops allow what is stored."""

    within_tolerance: bool
    kind: str = field(default="unaffected", init=False)


@dataclass(frozen=True)
class EarlierEpoch:
    """The requested versions are those of the epoch of the report, and others followed it."""

    kind: str = field(default="earlier", init=False)


@dataclass(frozen=True, kw_only=True)
class ReadAsItIs:
    """A pipeline did not refresh the view, which was not selected, and gave its readers the epoch of the report.

    missed: the base sources of which the epoch has another version than the run, which is given, by their paths.
    """

    missed: dict[str, int]
    kind: str = field(default="as it is", init=False)


@dataclass(frozen=True)
class EpochTakenBack:
    """An epoch failed by itself, and its tables were restored."""

    kind: str = field(default="taken back", init=False)


@dataclass(frozen=True, kw_only=True)
class RolledBack:
    """An earlier epoch was copied as a new generation."""

    epoch: int
    generation: int
    kind: str = field(default="rolled back", init=False)


@dataclass(frozen=True, kw_only=True)
class Rebucketed:
    """The last epoch was copied into another number of buckets, as a new generation."""

    epoch: int
    generation: int
    buckets: int
    kind: str = field(default="rebucketed", init=False)


@dataclass(frozen=True, kw_only=True)
class Branched:
    """The view began as a branch of an epoch of another view."""

    view: str
    epoch: int
    kind: str = field(default="branched", init=False)


@dataclass(frozen=True, kw_only=True)
class FilesGone:
    """The files of pinned versions of some sources were removed."""

    versions: dict[str, int]
    kind: str = field(default="files gone", init=False)


@dataclass(frozen=True, kw_only=True)
class NotIncremental:
    """The policy had no choice of mode; node: the one that cannot be maintained incrementally."""

    node: str
    kind: str = field(default="not incremental", init=False)


@dataclass(frozen=True, kw_only=True)
class ModeChosen:
    """The policy chose a mode by the expected seconds; share: of these, what the other mode has to take less than."""

    mode: str
    share: float
    kind: str = field(default="mode chosen", init=False)


@dataclass(frozen=True, kw_only=True)
class Redefined:
    """The query, the tables or what a source has changed, so that a generation began."""

    what: str
    kind: str = field(default="redefined", init=False)


@dataclass(frozen=True, kw_only=True)
class FinishedBefore:
    """Another epoch ran first: one that was interrupted, or the first of a generation; reused: the states it took."""

    epoch: int
    verdict: str
    reused: tuple[str, ...] = ()
    kind: str = field(default="before", init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reused", tuple(self.reused))  # JSON has no tuples


Subject = (
    EpochRan
    | ChunksRan
    | SourcesUnchanged
    | ViewUnaffected
    | EarlierEpoch
    | ReadAsItIs
    | EpochTakenBack
    | RolledBack
    | Rebucketed
    | Branched
)
"""The first note of a report: what it is about."""
Addition = FilesGone | NotIncremental | ModeChosen | Redefined | FinishedBefore
Note = Subject | Addition
KINDS: Mapping[str, type[Note]] = {kind.kind: kind for kind in (*get_args(Subject), *get_args(Addition))}


def read_notes(stored: Iterable[Note | Mapping[str, Any]]) -> tuple[Note, ...]:
    """Return notes from JSON, which has dictionaries; none if a later release wrote some that this one lacks."""
    notes = list[Note]()
    for note in stored:
        if not isinstance(note, Mapping):
            notes.append(note)
        elif (kind := KINDS.get(note["kind"])) is None:
            return ()
        else:
            fields: dict[str, Any] = {name: value for name, value in note.items() if name != "kind"}
            notes.append(kind(**fields))
    return tuple(notes)
