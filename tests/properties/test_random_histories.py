"""The one promise: after every refresh each view equals the batch query at the same versions.

Several random queries share one random history, cut into random refreshes, over both merge paths and several buckets.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from incremental.api import Delta, Tuning, View, Warehouse
from tests.corpus.lakes import DeltaLake, MemoryLake
from tests.corpus.memory import MemoryTable, MemoryView
from tests.examples.scene import confirm
from tests.properties.comparing import difference
from tests.properties.histories import History, Step, histories
from tests.properties.queries import queries

DEAR = 6  # an example on Delta takes as long as so many in memory, or more


@dataclass(frozen=True)
class Paths:
    """How states are stored and merged; edited: whether the queries get another column on the way."""

    always_merge: bool
    buckets: int
    deletion_vectors: bool
    invariant: bool
    edited: bool


INVARIANT = st.sampled_from([False, False, True])
paths = st.builds(Paths, st.booleans(), st.sampled_from([1, 3]), st.booleans(), INVARIANT, st.booleans())


@settings(max_examples=settings().max_examples // DEAR)
@given(st.lists(queries(), min_size=4, max_size=4), histories, paths)
def test_views_equal_their_queries(spark: SparkSession, sql: list[str], cuts: list[list[Step]], way: Paths) -> None:
    """Any query, any history, any refreshes."""
    assume(len(set(sql)) == len(sql) and len("".join(sql)) > 800)  # an example is dear: none on trivial queries
    for text in sql:
        note(text)
    with tempfile.TemporaryDirectory() as folder:
        events, dimension = (
            DeltaLake(spark, f"{folder}/events", way.deletion_vectors),
            DeltaLake(spark, f"{folder}/dim"),
        )
        history = History(spark, events, dimension, way.invariant)
        warehouse = Warehouse(spark, Path(folder) / "warehouse", tuning(way))
        warehouse.source("events", Delta(events.path))
        warehouse.source("dim", Delta(dimension.path, invariant=way.invariant))
        views = [warehouse.view(f"v{number}", text) for number, text in enumerate(sql)]
        wrong = [said for view in views for said in failures(view, [])]
        for number in range(len(cuts)):
            for step in cuts[number]:
                history.apply(step)
            if way.edited and number == 1:
                edits = {view.name: f"select *, 1 as one from ({view.query})" for view in views}
                views = [warehouse.view(name, text, on_change="rebuild") for name, text in edits.items()]
            last = number == len(cuts) - 1
            wrong += [said for view in views for said in failures(view, cuts[: number + 1], last)]
            assert not wrong, "\n\n".join([*wrong, str(way)])


@given(queries(), histories, paths)
def test_views_in_memory_equal_their_queries(spark: SparkSession, sql: str, cuts: list[list[Step]], way: Paths) -> None:
    """The same, ten times faster: many more queries."""
    sources = {name: MemoryTable(spark, name) for name in ("events", "dim")}
    history = History(spark, MemoryLake(sources["events"]), MemoryLake(sources["dim"]), way.invariant)
    invariant = frozenset({"dim"}) if way.invariant else frozenset[str]()
    view = MemoryView(spark, sql, sources, invariant, buckets=way.buckets, tuning=tuning(way))
    for number in range(len(cuts) + 1):
        view.refresh()
        found = difference(view.expected().collect(), view.answer().collect())
        assert not found, f"{sql}\nafter {cuts[:number]}, {way}\n{found}"
        for step in cuts[number] if number < len(cuts) else []:
            history.apply(step)


def tuning(way: Paths) -> Tuning:
    """The merge path and the number of buckets."""
    sizes = Tuning(rewrite_files=0) if way.always_merge else Tuning()
    return replace(sizes, bucket_bytes=1, buckets=way.buckets) if way.buckets > 1 else sizes


def failures(view: View, done: list[list[Step]], last: bool = False) -> list[str]:
    """Refresh, then what an independent comparison finds wrong, and in the end the verifier."""
    said = f"{view.query}\nafter {done}"
    try:
        assert view.verdict == "incremental", view.explain()
        view.refresh()
        confirm(view)
        verification = view.verify() if last else None
    except Exception as error:
        return [f"{said}\n{type(error).__name__}: {str(error)[:2000]}"]
    return [f"{said}\nverify: {verification.sample}"] if verification and not verification.ok else []
