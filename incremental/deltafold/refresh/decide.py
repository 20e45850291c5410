"""Decide what a refresh does next: the one place that knows what may follow what. Reads and writes nothing (D-185).

A refresh performs a step and decides again from the history after it, until the step is `Nothing`:

| the newest epoch | next step |
| --- | --- |
| none yet | `Advance`, the first epoch |
| a copy into other buckets, not finished | `ForgetCopy` |
| any, and a rebuild was asked for, the query changed, or a source lost what was read | `StartGeneration` |
| failed by itself, after an epoch of its generation | `TakeBack` |
| failed by itself, as the first of its generation | `StartGeneration` |
| interrupted | `Resume`; `StartGeneration` if another one failed above it |
| a chunk of a change | `TakeChunk`; `TakeRest` after a chunk that failed by itself |
| complete, and a source has other versions | `Advance` |
| complete, and no source has other versions | `Nothing` |

What was begun is finished before the versions are looked up that the refresh has to reach (`LookUpVersions`), because
views below are refreshed to them. `Refuse` stands where a step would go on with tables of another query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deltafold.store.history import Begun, Copying, Event, Failed, Finished, History


@dataclass(frozen=True)
class ForgetCopy:
    """Remove an unfinished copy from the journal."""

    copy: Copying


@dataclass(frozen=True)
class TakeBack:
    """Restore the tables that a failed epoch wrote."""

    failed: Failed
    before: Finished


@dataclass(frozen=True)
class Resume:
    """Finish an interrupted epoch from its pinned versions."""

    begun: Begun


@dataclass(frozen=True)
class LookUpVersions:
    """Look up the versions to reach, and refresh the views below: nothing that was begun is left to be finished."""


@dataclass(frozen=True)
class TakeChunk:
    """Take in the chunk after a finished one."""

    last: Finished


@dataclass(frozen=True)
class TakeRest:
    """Take in at once what the chunks left, up to the versions to reach."""

    last: Finished


@dataclass(frozen=True)
class Advance:
    """Go on from the last epoch to the versions to reach; at_once: not in chunks, the first of which failed."""

    last: Finished | None
    at_once: bool = False


@dataclass(frozen=True)
class StartGeneration:
    """Compute the view from nothing in new tables; at_once: as in `Advance`."""

    last: Event | None
    at_once: bool = False


@dataclass(frozen=True)
class Refuse:
    """Refuse to go on from an epoch of another query, or in other tables."""

    last: Event


@dataclass(frozen=True)
class Nothing:
    """Keep the last epoch: it is at the versions to reach."""

    last: Finished


EpochStep = Resume | TakeChunk | TakeRest | Advance | StartGeneration
"""The steps that run an epoch, which may fail by itself."""
Step = EpochStep | ForgetCopy | TakeBack | LookUpVersions | Refuse | Nothing
SourceVersions = Literal["unknown", "same", "moved"]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a refresh has to reach beside versions: a new generation, if a rebuild was asked for and is not done yet."""

    rebuild: bool = False


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a refresh has looked up beside the journal.

    sources: their versions compared with those of the newest epoch; redefined: whether that epoch is of another query,
    or in other tables; replaces: whether a new generation may begin for it (on_change); failed: the last step of this
    refresh if it failed by itself, and the next may not.
    """

    sources: SourceVersions = "unknown"
    redefined: bool = False
    replaces: bool = False
    failed: Step | None = None


def decide(history: History, goal: Goal, facts: Facts) -> Step:
    """Return the next step of a refresh."""
    newest, at_once = history.newest, isinstance(facts.failed, Advance | StartGeneration)
    if isinstance(newest, Copying):
        return ForgetCopy(newest)
    if goal.rebuild or facts.replaces or _must_begin_again(history, facts):
        return LookUpVersions() if facts.sources == "unknown" else StartGeneration(newest, at_once)
    match newest:
        case Failed():
            before = history.before(newest.intent)
            assert before is not None
            return TakeBack(newest, before)
        case Begun() | Finished(complete=False) if facts.redefined:
            return Refuse(newest)
        case Begun():
            return Resume(newest)
        case Finished(complete=False) if facts.failed is None:
            return TakeChunk(newest)
        case _ if facts.sources == "unknown":
            return LookUpVersions()
        case None:
            return Advance(None, at_once)
        case Finished() if facts.redefined:
            return Refuse(newest)
        case Finished(complete=False):
            return TakeRest(newest)
        case Finished():
            return Advance(newest, at_once) if facts.sources == "moved" else Nothing(newest)


def _must_begin_again(history: History, facts: Facts) -> bool:
    """Return whether the newest epoch can neither be finished nor taken back.

    It is the first of its generation and failed by itself; or a rebuild began above it, and that failed by itself.
    """
    match history.newest:
        case Failed() as failed:
            return facts.failed is not None or history.before(failed.intent) is None
        case Begun():
            return facts.failed is not None
        case _:
            return False
