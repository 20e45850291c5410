"""What others do to a view's own tables and to its query between two refreshes is noticed."""

from __future__ import annotations

import re
import shutil

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import ChangedQueryError, SourceError, StateError
from deltafold.algebra.sources import Delta
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, rows

QUERY = "select k, sum(v) s from t group by k"
ROWS = [(1, 1), (2, 2), (2, 3)]


def test_a_function_that_reads_another_global(sandbox: MemorySandbox) -> None:
    """Protects from the constant of the first evaluation, on one View."""
    least = [0]

    def above(t: DataFrame) -> DataFrame:
        return t.where(F.col("v") > least[0]).groupBy("k").count()

    sandbox.source("t", "k int, v int", ROWS)
    view = sandbox.view(above)
    checked(view)
    compiled = view.compiled.latest
    assert checked(view).verdict == "nothing to do"
    assert view.compiled.latest is compiled  # compiled once while the function returns the same query
    least[0] = 2
    with pytest.raises(ChangedQueryError, match="view v: the query, or a column that it reads, changed"):
        view.refresh()
    view.rebuild()
    assert rows(view) == [(2, 1)]


@pytest.mark.parametrize("publish", ["auto", "table"])
def test_a_table_of_the_view_that_is_gone(sandbox: MemorySandbox, publish: str) -> None:
    """Protects from "nothing to do" without an answer."""
    sandbox.source("t", "k int, v int", ROWS)
    view = sandbox.view(QUERY, publish=publish)
    checked(view)
    shutil.rmtree(view.path.removeprefix("file:"))
    for _ in ("nothing new", "a new row"):
        with pytest.raises(StateError, match=r"view v: its table .* is gone\. Rebuild the view"):
            view.refresh()
        sandbox.insert("t", "k int, v int", [(3, 3)])
    view.rebuild()
    checked(view)


def test_rows_of_another_writer_in_the_view(delta: DeltaSandbox) -> None:
    """Protects from an answer that stays wrong; what changes no row is allowed."""
    delta.source("t", "k int, v int", ROWS)
    view = delta.view(QUERY)
    checked(view)
    delta.sql("optimize {v}", v=view.path)
    delta.sql("alter table {v} set tblproperties ('who' = 'me')", v=view.path)
    delta.insert("t", "k int, v int", [(1, 5)])
    checked(view)
    delta.sql("delete from {v} where k = 1", v=view.path)
    with pytest.raises(StateError, match=r"rows that its journal does not know, since version \d.* Rebuild the view"):
        view.refresh()
    view.rebuild()
    checked(view)


def test_an_answer_without_its_source(sandbox: MemorySandbox) -> None:
    """Protects from an answer that is there and cannot be read, as a source vanished."""
    sandbox.source("t", "k int, v int", ROWS)
    view = sandbox.view(QUERY)
    checked(view)
    sandbox.remove("t")
    assert rows(view) == [(1, 1), (2, 5)]


def test_the_state_of_a_view_without_its_source(sandbox: MemorySandbox) -> None:
    """Protects from `status` and `explain` that fail, or advise to land a table that nobody landed."""
    sandbox.source("t", "k int, v int", ROWS)
    sandbox.source("u", "k int, w int", [(1, 1)])
    view = sandbox.view("select t.k, sum(v) s from t join u on t.k = u.k group by t.k")
    checked(view)
    sandbox.remove("t")
    status = view.status()
    assert (status.epoch, status.current, list(status.lag), list(status.problems)) == (1, False, ["u"], ["t"])
    gone = rf"source t is gone: there is no Delta table at {sandbox.path('t')} any more. Restore it, "
    assert re.match(gone, status.problems["t"])
    explained = view.explain()
    assert re.search(gone, explained) and "view v: incremental, epoch 1 of generation 1" in explained
    assert "group by k" in explained  # the plan of that epoch
    for use in (view.refresh, view.verify):
        with pytest.raises(SourceError, match=gone):
            use()


def test_a_source_that_never_was(sandbox: MemorySandbox) -> None:
    """Without an epoch there is nothing to show."""
    sandbox.warehouse.source("t", Delta(sandbox.path("t")))
    with pytest.raises(SourceError, match=r"source t has no data: .* Land its files, or create the table"):
        sandbox.view(QUERY).explain()
