"""Random loops over random graphs and histories with deletions, against an evaluation in plain Python.

Answers and failures beyond the limit must be those of the definition: the rounds in which rows are found count.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import NotConvergedError
from deltafold.algebra.plan import Keep
from deltafold.api import View, fixpoint
from tests.loops.cases import rows
from tests.loops.histories import WAYS
from tests.loops.references.graphs import Graph
from tests.loops.rounds.programs import Bag, Node, Pair, Side, random_step
from tests.night import night, sampled
from tests.reading import large_by_day, reading
from tests.sandbox import READS, DeltaSandbox, MemorySandbox, Sandbox, as_asked, confirm

Above = Literal["rows", "groups", "edges without"]
SCHEMA = "a int, b int, w int"
Given = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Program:
    """A loop and what reads it; keep: of a loop by the key x."""

    init: Node
    step: Node
    keep: Keep | None
    limit: int | None
    above: Above

    @classmethod
    def random(cls, chance: random.Random) -> Program:
        """Any program."""
        keep: Keep | None = chance.choice([None, None, "least", "greatest"])
        limit = chance.choice([None, None, 1, 2, 3, 4])
        init = Side(chance.choice(["starts", "starts", "edges", "busy"]))
        return cls(init, random_step(chance), keep, limit, chance.choice(["rows", "rows", "groups", "edges without"]))

    def query(self, edges: DataFrame, starts: DataFrame) -> DataFrame:
        """It as PySpark."""
        given = {"edges": edges, "starts": starts}
        init = self.init.frame(starts, given)
        key = None if self.keep is None else "x"
        found = fixpoint(init, lambda loop: self.step.frame(loop, given), key, self.keep, self.limit)
        match self.above:
            case "rows":
                return found
            case "groups":
                return found.groupBy((F.col("x") % 2).alias("odd")).agg(F.count("*").alias("n"), F.max("y").alias("y"))
            case _:
                return edges.join(found, edges["a"] == found["x"], "anti").select("a", "b")

    def expected(self, given: Given) -> Counter[tuple[Any, ...]] | None:
        """Its answer in plain Python; None beyond its limit."""
        found = self._best(given) if self.keep else self._set(given)
        if found is None:
            return None
        match self.above:
            case "rows":
                return Counter(found)
            case "groups":
                return Counter(groups(found))
            case _:
                known = {x for x, _ in found}
                return Counter((a, b) for a, b, _ in given["edges"] if a is None or a not in known)

    def _set(self, given: Given) -> Bag | None:
        return self._rounds(set(self.init.rows([], given)), lambda known: set(self.step.rows([*known], given)) - known)

    def _best(self, given: Given) -> Bag | None:
        sign = -1 if self.keep == "least" else 1

        def rank(pair: Pair) -> tuple[int, int]:
            return (0, 0) if pair[1] is None else (1, pair[1])  # NULL is the least

        def better(one: Pair, other: Pair) -> bool:
            left, right = rank(one), rank(other)
            return (left > right) if sign > 0 else (left < right)

        def best(pairs: Sequence[Pair]) -> dict[Any, Pair]:
            found: dict[Any, Pair] = {}
            for pair in pairs:
                if pair[0] not in found or better(pair, found[pair[0]]):
                    found[pair[0]] = pair
            return found

        def new(known: set[Pair]) -> set[Pair]:
            now = best([*known])
            candidates = best(self.step.rows([*known], given)).items()
            return {pair for key, pair in candidates if key not in now or better(pair, now[key])}

        found = self._rounds(set(best(self.init.rows([], given)).values()), new)
        return None if found is None else [*best(found).values()]

    def _rounds(self, known: set[Pair], new: Callable[[set[Pair]], set[Pair]]) -> Bag | None:
        """The rows after all rounds that find some; None if there are more than the limit."""
        rounds, found = 1, known
        while found or rounds == 1:
            if found and self.limit is not None and rounds > self.limit:
                return None
            known = known | found
            found, rounds = new(known), rounds + 1
        return [*known]


def groups(found: Bag) -> list[tuple[Any, ...]]:
    """The rows by the remainder of x: their number and the greatest y."""
    parts: dict[Any, list[Any]] = {}
    for x, y in found:
        parts.setdefault(None if x is None else x % 2, []).append(y)
    return [(odd, len(ys), max((y for y in ys if y is not None), default=None)) for odd, ys in parts.items()]


def history(sandbox: Sandbox, seed: int, refreshes: int) -> None:
    """One program over one random history."""
    chance = random.Random(seed)
    program = Program.random(chance)
    graph = Graph(chance, chance.randint(3, 6), lengths=True, nulls=bool(seed % 2))
    sandbox.tune(**WAYS[seed % len(WAYS)])
    sandbox.source("edges", SCHEMA, [])
    sandbox.source("starts", "x int", [])
    view = sandbox.view(program.query)
    last: Counter[tuple[Any, ...]] | None = None
    for number, (edges, starts) in enumerate(graph.histories(refreshes)):
        given = {"edges": rows(edges, 3), "starts": rows(starts, 1)}
        sandbox.insert("edges", SCHEMA, given["edges"], "overwrite")
        sandbox.insert("starts", "x int", given["starts"], "overwrite")
        try:
            last = refreshed(view, program.expected(given), last)
            if last is not None and number == refreshes - 1 and program.expected(given) is not None:
                confirm(view)
        except Exception as error:
            error.add_note(f"seed {seed}, refresh {number}, {program}, {given}")
            raise


def refreshed(
    view: View, expected: Counter[tuple[Any, ...]] | None, last: Counter[tuple[Any, ...]] | None
) -> Counter[tuple[Any, ...]] | None:
    """Refresh and compare; a refresh beyond the limit fails and leaves the answer as it was. Returns the answer."""
    with as_asked(view):
        if expected is None:
            with pytest.raises(NotConvergedError):
                view.refresh()
        else:
            view.refresh()
    kept = last if expected is None else expected
    if kept is not None:
        answer = Counter(tuple(row) for row in view.answer().collect())
        assert answer == kept, f"missing {kept - answer}, too many {answer - kept}"
    return kept


@night
@large_by_day
@pytest.mark.parametrize("seed", sampled([2, 11], lambda seed: seed == 11))
def test_a_random_loop_equals_its_evaluation(sandbox: MemorySandbox, seed: int) -> None:
    """Protects from rows that a step loses or keeps, whatever it is made of."""
    history(sandbox, seed, 2)


@night
@pytest.mark.parametrize("part", range(20))
def test_many_random_loops(spark: SparkSession, part: int) -> None:
    """In all 300 programs with 5 refreshes each."""
    for seed in range(15 * part, 15 * part + 15):
        with tempfile.TemporaryDirectory() as folder, reading([*READS][seed % 3]):
            history(MemorySandbox(spark, Path(folder)), seed, 5)


@night
@pytest.mark.parametrize("seed", range(300, 310))
def test_random_loops_on_delta(delta: DeltaSandbox, seed: int) -> None:
    """The same through Delta's files, MERGE and direct commits."""
    history(delta, seed, 4)
