"""What others do to a view's own tables and to its query between two refreshes is noticed."""

from __future__ import annotations

import shutil

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.errors import ChangedQueryError, StateError
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
        with pytest.raises(StateError, match=r"the table .* of view v is gone\. Rebuild the view"):
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
