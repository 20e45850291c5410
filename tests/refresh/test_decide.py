"""What follows what in a refresh: all histories that refreshes, crashes, failures and copies lead to, up to a bound.

A model in plain Python performs the steps that `decide` chooses, each with all of its outcomes. A source is at version
0 or 1, and the tables of a generation contain what an epoch left there, or half of what it writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Literal

import pytest

from deltafold.algebra.results.report import APPLIED, TAKEN_BACK, Report
from deltafold.refresh.decide import (
    Advance,
    Facts,
    ForgetCopy,
    Goal,
    LookUpVersions,
    Nothing,
    Refuse,
    Resume,
    StartGeneration,
    Step,
    TakeBack,
    TakeChunk,
    TakeRest,
    decide,
)
from deltafold.store.history import (
    WHOLE,
    Begun,
    Chunk,
    Copying,
    Event,
    Failed,
    Finished,
    History,
    Intent,
    Pin,
    number_of,
)
from tests.night import every

CHUNKS = 2
MOST_STEPS = 8  # forget a copy, take back, resume, look up, a chunk that fails, and at once what it was to begin
HALF = "half"
Outcome = Literal["done", "fails", "ends"]
"""A step is done, fails by itself so that another one follows, or ends the refresh: by an error or a crash."""


@cache
def event(
    kind: type[Event], generation: int, epoch: int, version: int, chunk: int | None = None, *, taken_back: bool = False
) -> Event:
    """An epoch that leads to a version of the source, or to one of the chunks before it; equal ones are identical."""
    intent = Intent(
        view="v",
        generation=generation,
        epoch=epoch,
        fingerprint="f",
        buckets=1,
        sources={"t": Pin(None, version, "")},
        extent=WHOLE if chunk is None else Chunk(chunk, CHUNKS, 1),
    )
    if kind is not Finished:
        return kind(intent)  # type: ignore[call-arg]
    verdict = TAKEN_BACK if taken_back else APPLIED
    return Finished(intent, Report(view="v", epoch=epoch, generation=generation, verdict=verdict, sentence=""), {})


def change(of: Event, **changes: Any) -> Event:
    """The same epoch with another kind, generation, number, or `taken_back`."""
    chunk, taken_back = chunk_of(of), isinstance(of, Finished) and of.taken_back
    known = {"kind": type(of), "generation": of.intent.generation, "epoch": of.intent.epoch, "version": version_of(of)}
    return event(**(known | {"chunk": chunk, "taken_back": taken_back} | changes))


def chunk_of(of: Event) -> int | None:
    return of.intent.extent.number if isinstance(of.intent.extent, Chunk) else None


def version_of(of: Event) -> int:
    return of.intent.sources["t"].after


def rows(of: Event) -> object:
    """What the tables contain after an epoch."""
    return version_of(of), None if of.intent.arrives else chunk_of(of)


@dataclass(frozen=True)
class Disk:
    """The epochs in the journal, and what the tables of each generation contain."""

    events: tuple[Event, ...] = ()
    tables: tuple[tuple[int, object], ...] = ()

    @cached_property
    def history(self) -> History:
        complete = [n for n, e in enumerate(self.events) if isinstance(e, Finished) and e.complete]
        return History(self.events[complete[-1] if complete else 0 :], tuple(map(number_of, self.events)))

    @property
    def key(self) -> object:
        return tuple(map(id, self.events)), self.tables

    @property
    def shortened(self) -> Disk:
        """The disk without what is older than the last complete epoch, and without gaps in its numbers."""
        events, known = self.history.events, list[Event]()
        generations = sorted({number_of(e)[0] for e in events})
        for e in events:
            generation = 1 + generations.index(number_of(e)[0])
            known.append(change(e, generation=generation, epoch=1 + sum(number_of(k)[0] == generation for k in known)))
        tables = [(1 + generations.index(own), content) for own, content in self.tables if own in generations]
        return Disk(tuple(known), tuple(tables))

    def put(self, new: Event) -> Disk:
        kept = [e for e in self.events if number_of(e) != number_of(new)]
        return Disk(tuple(sorted([*kept, new], key=number_of)), self.tables)

    def without(self, gone: Event) -> Disk:
        """The disk without an epoch; tables that no epoch has any more stay, but their number is not used again."""
        events = tuple(e for e in self.events if number_of(e) != number_of(gone))
        used = {number_of(e)[0] for e in events}
        return Disk(events, tuple(pair for pair in self.tables if pair[0] in used))

    def write(self, generation: int, content: object) -> Disk:
        return Disk(self.events, tuple(sorted((dict(self.tables) | {generation: content}).items())))

    def content(self, generation: int) -> object:
        return dict(self.tables).get(generation)


Outcomes = Iterator[tuple[Disk, Outcome]]


def run(disk: Disk, begun: Event, *, another: bool) -> Outcomes:
    """An epoch; another: whether another step follows if it fails by itself."""
    fails: Outcome = "fails" if another else "ends"
    generation = begun.intent.generation
    half = disk.put(begun).write(generation, HALF)
    whole = half.write(generation, rows(begun))
    for crashed in (disk.put(begun), half, whole):
        yield crashed, "ends"
    yield whole.put(change(begun, kind=Finished)), "done"
    if disk.content(generation) not in (HALF, rows(begun)):
        yield disk.without(begun), fails  # it wrote nothing: its entry is removed
    before = half.history.before(begun.intent)
    if before is not None:
        failed = change(before, kind=Failed, epoch=begun.intent.epoch, taken_back=False)
        yield half.put(failed), "ends"
        for back, outcome in take_back(half, failed, before):
            yield back, fails if outcome == "done" else outcome
    elif any(number_of(e)[0] != generation for e in disk.events):
        yield half.without(begun), fails
    else:
        yield half.put(change(begun, kind=Failed)), fails


def take_back(disk: Disk, failed: Event, before: Finished) -> Outcomes:
    restored = disk.put(failed).write(failed.intent.generation, rows(before))
    back = restored.put(change(failed, kind=Finished, taken_back=True))
    yield restored, "ends"
    yield back, "ends"
    yield back.without(before) if before.taken_back else back, "done"


def perform(disk: Disk, step: Step, target: int) -> Outcomes:
    """All outcomes of a step; target: the version of the source that the refresh has to reach."""
    unused = 1 + max([0, *(number_of(e)[0] for e in disk.events)])
    match step:
        case ForgetCopy(copy):
            yield disk.without(copy), "done"
        case TakeBack(failed, before):
            yield from take_back(disk, failed, before)
        case Resume(begun):
            yield from run(disk, begun, another=True)
        case TakeChunk(last):
            chunk = chunk_of(last)
            assert chunk is not None
            following = change(last, kind=Begun, epoch=last.intent.epoch + 1, chunk=chunk + 1)
            yield from run(disk, change(following, taken_back=False), another=True)
        case TakeRest(last):
            rest = event(Begun, last.intent.generation, last.intent.epoch + 1, target, CHUNKS)
            yield from run(disk, rest, another=False)
        case Advance(last, at_once) | StartGeneration(last, at_once):
            number = unused, 1
            if isinstance(step, Advance) and last is not None:
                number = last.intent.generation, last.intent.epoch + 1
            yield from run(disk, event(Begun, *number, target), another=False)
            if not at_once:
                yield from run(disk, event(Begun, *number, target, 1), another=True)
            if (
                number[1] == 1 and isinstance(last, Finished) and last.complete
            ):  # at its versions a state of it is reused
                yield from run(disk, event(Begun, *number, version_of(last)), another=False)
        case LookUpVersions():
            yield disk, "done"
        case Refuse() | Nothing():
            yield disk, "ends"


def check(disk: Disk, step: Step, goal: Goal, facts: Facts, target: int) -> None:
    """Every step is about the newest epoch, and finds the tables as that epoch left them."""
    history = disk.history
    newest, replaced = history.newest, goal.rebuild or facts.replaces
    match step:
        case ForgetCopy(copy):
            assert copy is newest
        case LookUpVersions():
            assert facts.sources == "unknown"
        case Refuse(last):
            assert last is newest and facts.redefined and not replaced
        case StartGeneration(last):
            assert last is newest and facts.sources != "unknown"
            alone = isinstance(last, Failed) and history.before(last.intent) is None
            assert replaced or alone or (isinstance(last, Begun | Failed) and facts.failed is not None), "starts over"
        case TakeBack(failed, before):
            assert failed is newest and not replaced
            assert number_of(before) == max(n for n in history.numbers if n < number_of(failed)), "another epoch"
            assert before.intent.generation == failed.intent.generation
        case Resume(begun):
            assert begun is newest and not replaced and not facts.redefined
            earlier = [e for e in disk.events if number_of(e) < number_of(begun)]
            follows = earlier and earlier[-1].intent.generation == begun.intent.generation
            found = rows(earlier[-1]) if follows else None
            assert disk.content(begun.intent.generation) in (found, HALF, rows(begun)), "resumed on other rows"
        case Advance(None):
            assert newest is None
        case TakeChunk(last) | TakeRest(last) | Advance(Finished() as last) | Nothing(last):
            assert last is newest and not replaced and not facts.redefined, "skips an epoch"
            assert disk.content(last.intent.generation) == rows(last), "goes on from half-written tables"
            assert last.complete == isinstance(step, Advance | Nothing)
            assert not isinstance(step, Nothing) or version_of(last) == target


@dataclass(frozen=True)
class Course:
    """A refresh under way; target: the version to reach."""

    disk: Disk
    goal: Goal
    facts: Facts
    target: int

    @property
    def key(self) -> object:
        facts = self.facts
        known = facts.sources == "unknown", facts.redefined, facts.replaces, type(facts.failed)
        return self.disk.key, self.goal.rebuild, known, self.target

    def follow(self) -> Iterator[Course | Disk]:
        """Decide and perform: the refresh after each outcome of the step, or the disk where it ended."""
        facts, newest = self.facts, self.disk.history.newest
        if newest is None:
            facts = replace(facts, redefined=False, replaces=False)
        if facts.sources != "unknown":
            moved = newest is None or version_of(newest) != self.target
            facts = replace(facts, sources="moved" if moved else "same")
        step = decide(self.disk.history, self.goal, facts)
        check(self.disk, step, self.goal, facts, self.target)
        if isinstance(step, LookUpVersions):
            yield replace(self, facts=replace(facts, sources="moved"))
            return
        failed, starts = replace(facts, failed=step), isinstance(step, StartGeneration)
        done = replace(
            facts, failed=None, redefined=facts.redefined and not starts, replaces=facts.replaces and not starts
        )
        for disk, outcome in perform(self.disk, step, self.target):
            if outcome == "ends":
                yield disk
            elif outcome == "fails":
                yield replace(self, disk=disk, facts=failed)
            else:
                yield Course(disk, Goal(rebuild=self.goal.rebuild and not starts), done, self.target)


WAYS = [
    (Goal(), Facts()),
    (Goal(rebuild=True), Facts()),
    (Goal(), Facts(redefined=True)),
    (Goal(), Facts(redefined=True, replaces=True)),
]


def copies(disk: Disk) -> Iterator[Disk]:
    """A rollback, or a copy into other buckets, interrupted or finished."""
    newest = disk.history.newest
    if isinstance(newest, Finished) and newest.complete:
        generation = newest.intent.generation + 1
        copied = event(Begun, generation, 1, version_of(newest))
        yield disk.put(copied)
        yield disk.put(change(copied, kind=Copying))
        yield disk.write(generation, HALF).put(change(copied, kind=Copying))
        yield disk.write(generation, rows(copied)).put(change(copied, kind=Finished))


def explore(epochs: int, generations: int) -> int:
    """Follow all refreshes from all histories of at most so many epochs and generations; return their number."""
    lengths = dict[object, int]()  # the most decisions until the refresh ends; 0 while they are counted

    def length(course: Course) -> int:
        key = course.key
        if key not in lengths:
            lengths[key] = 0
            found = list(course.follow())
            waiting.extend(after for after in found if isinstance(after, Disk))
            lengths[key] = 1 + max((length(after) for after in found if isinstance(after, Course)), default=0)
        assert lengths[key], f"does not end: {course}"
        return lengths[key]

    waiting, raw, disks = [Disk()], set[object](), set[object]()
    while waiting:
        disk = waiting.pop()
        if disk.key in raw:
            continue
        raw.add(disk.key)
        disk = disk.shortened
        if (
            len(disk.events) > epochs
            or (disk.events and number_of(disk.events[-1])[0] > generations)
            or disk.key in disks
        ):
            continue
        disks.add(disk.key)
        waiting.extend(copies(disk))
        version = version_of(disk.events[-1]) if disk.events else 0
        courses = [Course(disk, goal, facts, target) for goal, facts in WAYS for target in (version, 1 - version)]
        assert max(map(length, courses)) <= MOST_STEPS
    return len(disks)


@pytest.mark.parametrize("bounds", every(2, [(3, 1), (3, 2), (2, 2)]), ids=str)
def test_every_history_is_gone_on_from(bounds: tuple[int, int]) -> None:
    """Protects from an epoch that is skipped, done twice or restored to another one, and from an endless refresh."""
    assert explore(*bounds) > 100
