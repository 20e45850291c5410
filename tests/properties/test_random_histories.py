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

from deltafold.api import Tuning, View
from tests.corpus.writer import Writer
from tests.properties.histories import History, Step, histories
from tests.properties.queries import queries
from tests.reading import reading
from tests.sandbox import READS, DeltaSandbox, MemorySandbox, Sandbox, as_asked, confirm

VIEWS = 1 if settings().max_examples < 100 else 2  # of one history on Delta
DEAR = 12  # an example on Delta takes as long as so many in memory


@dataclass(frozen=True)
class Paths:
    """How states are stored and merged, and inputs read; edited: whether the queries get another column on the way."""

    merge: str
    buckets: int
    deletion_vectors: bool
    invariant: bool
    edited: bool
    reads: str


INVARIANT = st.sampled_from([False, False, True])
MERGES = {
    "by size": Tuning(),
    "always": Tuning(rewrite_files=0, rewrite_touched_bytes=0),
    "by Delta": Tuning(rewrite_files=0, rewrite_touched_bytes=0, local_rows=0),
}
paths = st.builds(
    Paths,
    st.sampled_from([*MERGES]),
    st.sampled_from([1, 3]),
    st.booleans(),
    INVARIANT,
    st.booleans(),
    st.sampled_from([*READS]),
)


@settings(max_examples=max(1, settings().max_examples // DEAR))
@given(st.lists(queries(), min_size=VIEWS, max_size=VIEWS), histories, paths)
def test_views_equal_their_queries(spark: SparkSession, sql: list[str], cuts: list[list[Step]], way: Paths) -> None:
    """Any query, any history, any refreshes."""
    assume(len(set(sql)) == len(sql) and len("".join(sql)) > 200 * VIEWS)  # an example is dear: none on trivial queries
    for text in sql:
        note(text)
    with tempfile.TemporaryDirectory() as folder, reading(way.reads):
        delta = DeltaSandbox(spark, Path(folder))
        history, warehouse = begun(delta, way), delta.warehouse
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
    with tempfile.TemporaryDirectory() as folder, reading(way.reads):
        sandbox = MemorySandbox(spark, Path(folder))
        history, view = begun(sandbox, way), sandbox.view(sql)
        for number in range(len(cuts) + 1):
            wrong = failures(view, cuts[:number], number == len(cuts))
            assert not wrong, f"{wrong}\n{way}"
            for step in cuts[number] if number < len(cuts) else []:
                history.apply(step)


def begun(sandbox: Sandbox, way: Paths) -> History:
    """The two sources of a history, declared."""
    sandbox.deletion_vectors = way.deletion_vectors
    history = History(sandbox.spark, Writer(sandbox, "events"), Writer(sandbox, "dim"), way.invariant)
    sandbox.warehouse.tuning = tuning(way)
    sandbox.declare("events")
    sandbox.declare("dim", invariant=way.invariant)
    return history


def tuning(way: Paths) -> Tuning:
    """The merge path and the number of buckets."""
    sizes = MERGES[way.merge]
    return replace(sizes, bucket_bytes=1, buckets=way.buckets) if way.buckets > 1 else sizes


def failures(view: View, done: list[list[Step]], last: bool = False) -> list[str]:
    """Refresh, then what an independent comparison finds wrong, and in the end the verifier."""
    said = f"{view.query}\nafter {done}"
    try:
        assert view.mode == "incremental", view.explain()
        with as_asked(view):
            view.refresh()
        confirm(view)
        verification = view.verify() if last else None
    except Exception as error:
        return [f"{said}\n{type(error).__name__}: {str(error)[:2000]}"]
    return [f"{said}\nverify: {verification.sample}"] if verification and not verification.ok else []
