"""The two algorithms that maintain a loop, over dictionaries: what the product does with tables, in thirty lines each.

A candidate is a row at a level, with the number of its derivations there; some candidates are accepted, and the step is
evaluated over these. `change(before, after, change)` of a step gives the change of its answer, one level up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

Row = Any
Key = Any
Leveled = tuple[Row, int]
ZSet = dict[Any, int]
Edges = Mapping[tuple[Any, ...], int]


class Step(Protocol):
    """A step over the loop's rows and the edges: its answer, and the change of it when the loop's rows change."""

    def rows(self, known: ZSet, edges: Edges) -> ZSet: ...

    def change(self, before: ZSet, after: ZSet, moved: ZSet, edges: Edges) -> ZSet: ...


def add(zset: ZSet, key: Any, weight: int) -> None:
    zset[key] = zset.get(key, 0) + weight
    if not zset[key]:
        del zset[key]


def minus(after: Mapping[Any, int], before: Mapping[Any, int]) -> ZSet:
    found = dict(after)
    for key, weight in before.items():
        add(found, key, -weight)
    return found


class Linear:
    """A step that reads the loop once: an edge that starts where a row ends derives another row from it."""

    def __init__(self, end: Callable[[Row], Any], derive: Callable[[Row, tuple[Any, ...]], Row]) -> None:
        self._end, self._derive = end, derive

    def rows(self, known: ZSet, edges: Edges) -> ZSet:
        """All pairs, found as a join finds them: NULL is where nothing starts or ends."""
        by_start = defaultdict[Any, list[tuple[tuple[Any, ...], int]]](list)
        for edge, copies in edges.items():
            by_start[edge[0]].append((edge, copies))
        found: ZSet = {}
        for (row, level), weight in known.items():
            end = self._end(row)
            for edge, copies in by_start[end] if end is not None else ():
                add(found, (self._derive(row, edge), level + 1), weight * copies)
        return found

    def change(self, before: ZSet, after: ZSet, moved: ZSet, edges: Edges) -> ZSet:
        return self.rows(moved, edges)


class Squared:
    """r(x, z) from r(x, y) and r(y, z): the loop twice, the edges not at all."""

    def rows(self, known: ZSet, edges: Edges) -> ZSet:
        return self._joined(known, known)

    def change(self, before: ZSet, after: ZSet, moved: ZSet, edges: Edges) -> ZSet:
        found = self._joined(moved, before)
        for key, weight in self._joined(after, moved).items():
            add(found, key, weight)
        return found

    @staticmethod
    def _joined(left: ZSet, right: ZSet) -> ZSet:
        found: ZSet = {}
        for ((x, y), one), weight in left.items():
            for ((start, z), other), more in right.items():
                if y == start and y is not None:
                    add(found, ((x, z), max(one, other) + 1), weight * more)
        return found


class LoseAndGain:
    """Sets: rows whose accepted level lost its last derivation go, then what has a derivation is accepted."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self.candidates: dict[Row, dict[int, int]] = {}
        self.level: dict[Row, int] = {}

    @property
    def answer(self) -> ZSet:
        return dict.fromkeys(self.level, 1)

    def refresh(self, init: ZSet, old: Edges, new: Edges) -> int:
        """Take in the change of init and edges; returns the number of rounds."""
        known = dict.fromkeys(self.level.items(), 1)
        first = {(row, 0): weight for row, weight in init.items()}
        for key, weight in minus(self._step.rows(known, new), self._step.rows(known, old)).items():
            add(first, key, weight)
        pending, rounds = self._absorb(first), 1
        touched = set(pending)
        while lost := {row for row in touched if row in self.level and not self._rows(row, self.level[row])}:
            moved = {(row, self.level.pop(row)): -1 for row in lost}
            touched = self._absorb(self._derived(moved, new))
            pending, rounds = pending | lost | touched, rounds + 1
        while gained := {row: least for row in pending if (least := self._least(row)) is not None}:
            self.level |= gained
            pending = self._absorb(self._derived(dict.fromkeys(gained.items(), 1), new))
            rounds += 1
        assert set(self.level) == set(self.candidates)
        return rounds

    def _derived(self, moved: ZSet, edges: Edges) -> ZSet:
        after = dict.fromkeys(self.level.items(), 1)
        return self._step.change(minus(after, moved), after, moved, edges)

    def _rows(self, row: Row, level: int) -> int:
        return self.candidates.get(row, {}).get(level, 0)

    def _least(self, row: Row) -> int | None:
        return None if row in self.level else min(self.candidates.get(row, ()), default=None)

    def _absorb(self, change: ZSet) -> set[Row]:
        for (row, level), weight in change.items():
            levels = self.candidates.setdefault(row, {})
            add(levels, level, weight)
            assert levels.get(level, 1) > 0, f"{row} has fewer than no derivations at level {level}"
            if not levels:
                del self.candidates[row]
        return {row for row, _ in change}


Accepted = Callable[[ZSet, int], ZSet]
"""The values of a key that are accepted at a level, by its candidates (level, value)."""


def every(candidates: ZSet, level: int) -> ZSet:
    """Levels: each candidate as often as it is derived."""
    return {value: rows for (at, value), rows in candidates.items() if at == level}


def once(candidates: ZSet, level: int) -> ZSet:
    """Levels with DISTINCT at the top of the step, which leaves init, at level 0, as it is."""
    here = every(candidates, level)
    return dict.fromkeys(here, 1) if level else here


def best(candidates: ZSet, level: int) -> ZSet:
    """The least value of the level, where no lower level has one as good."""
    here, below = every(candidates, level), [value for at, value in candidates if at < level]
    least = min(here, default=None)
    return {} if least is None or min(below, default=(*least, 0)) <= least else {least: 1}


class ByLevel:
    """Bags of levels, and best values: levels in rising order, each against what was accepted there before.

    split, whole: a row as key and value, and back.
    """

    def __init__(
        self,
        step: Step,
        accepted: Accepted,
        split: Callable[[Row], tuple[Key, Any]] = lambda row: (row, None),
        whole: Callable[[Key, Any], Row] = lambda key, value: key,
    ) -> None:
        self._step, self._accepted, self._split, self._whole = step, accepted, split, whole
        self.candidates: dict[Key, ZSet] = {}

    @property
    def accepted(self) -> ZSet:
        """Every accepted candidate, as (row, level)."""
        return self._accepted_of(self.candidates)

    def refresh(self, init: ZSet, old: Edges, new: Edges) -> int:
        """Take in the change of init and edges; returns the number of levels that were looked at."""
        before = {key: dict(each) for key, each in self.candidates.items()}
        known = self._accepted_of(before)
        first = {(row, 0): weight for row, weight in init.items()}
        for key, weight in minus(self._step.rows(known, new), self._step.rows(known, old)).items():
            add(first, key, weight)
        touched = self._absorb(first)
        level, rounds = -1, 0
        sides = (before, self.candidates)
        while higher := {at for key in touched for side in sides for at, _ in side.get(key, ()) if at > level}:
            level, rounds = min(higher), rounds + 1
            moved: ZSet = {}
            for key in touched:
                stored, found = (self._accepted(side.get(key, {}), level) for side in sides)
                moved |= {(self._whole(key, value), level): weight for value, weight in minus(found, stored).items()}
            after = dict(known)
            for key, weight in moved.items():
                add(after, key, weight)
            touched |= self._absorb(self._step.change(known, after, moved, new))
            known = after
        assert known == self.accepted
        return rounds

    def _accepted_of(self, candidates: Mapping[Key, ZSet]) -> ZSet:
        return {
            (self._whole(key, value), level): weight
            for key, each in candidates.items()
            for level in {at for at, _ in each}
            for value, weight in self._accepted(each, level).items()
        }

    def _absorb(self, change: ZSet) -> set[Key]:
        touched = set[Key]()
        for (row, level), weight in change.items():
            key, value = self._split(row)
            touched.add(key)
            of_key = self.candidates.setdefault(key, {})
            add(of_key, (level, value), weight)
            assert of_key.get((level, value), 1) > 0, f"{row} has fewer than no derivations at level {level}"
            if not of_key:
                del self.candidates[key]
        return touched
