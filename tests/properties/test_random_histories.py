"""The one promise: after every refresh each view equals the batch query at the same versions.

Several random queries share one random history, cut into random refreshes, over both merge paths and several buckets.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from hypothesis import assume, given, note
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from incremental.api import Delta, View, Warehouse
from incremental.runtime import maintain, publish, refresh
from tests.examples.scene import confirm
from tests.properties.histories import DIMENSION_ROWS, DIMENSION_SCHEMA, History, Step, histories
from tests.properties.queries import queries


@dataclass(frozen=True)
class Paths:
    """How states are stored and merged."""

    always_merge: bool
    buckets: int
    deletion_vectors: bool


paths = st.builds(Paths, st.booleans(), st.sampled_from([1, 3]), st.booleans())


@given(st.lists(queries(), min_size=4, max_size=4), histories, paths)
def test_views_equal_their_queries(spark: SparkSession, sql: list[str], cuts: list[list[Step]], way: Paths) -> None:
    """Any query, any history, any refreshes."""
    assume(len(set(sql)) == len(sql) and len("".join(sql)) > 800)  # an example is dear: none on trivial queries
    for text in sql:
        note(text)
    with tempfile.TemporaryDirectory() as folder, stored(way):
        history = History(spark, f"{folder}/events", way.deletion_vectors)
        dimension = spark.createDataFrame(DIMENSION_ROWS, DIMENSION_SCHEMA)
        dimension.write.format("delta").save(f"{folder}/dim")
        warehouse = Warehouse(spark, Path(folder) / "warehouse")
        warehouse.source("events", Delta(history.path))
        warehouse.source("dim", Delta(f"{folder}/dim", invariant=True))
        views = [warehouse.view(f"v{number}", text) for number, text in enumerate(sql)]
        wrong = [said for view in views for said in failures(view, [])]
        for number in range(len(cuts)):
            for step in cuts[number]:
                history.apply(step)
            last = number == len(cuts) - 1
            wrong += [said for view in views for said in failures(view, cuts[: number + 1], last)]
            assert not wrong, "\n\n".join([*wrong, str(way)])


@contextmanager
def stored(way: Paths) -> Iterator[None]:
    """The merge path and the number of buckets."""
    with ExitStack() as patched:
        if way.always_merge:
            for room in (maintain, publish):
                patched.enter_context(mock.patch.object(room, "SMALL_FILES", 0))
        if way.buckets > 1:
            patched.enter_context(mock.patch.multiple(refresh, BUCKET_BYTES=1, MOST_BUCKETS=way.buckets))
        yield


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
