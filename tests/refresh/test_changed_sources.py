"""A source whose columns changed since the state was built."""

from __future__ import annotations

import pytest

from deltafold.algebra.errors import QueryError, SourceError
from tests.refresh.test_changes import refusal
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, rows


def test_columns_of_a_source(delta: DeltaSandbox, long: bool) -> None:
    """What the query does not read may change; what it reads is named."""
    delta.sql(
        f"create table delta.`{delta.path('t')}` (k int, v int, spare int, note string) using delta tblproperties "
        "('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    delta.sql("insert into {t} values (1, 1, 1, 'a'), (2, -2, 2, 'b')")
    delta.declare("t")
    view = delta.view("select k, sum(v) s from t group by k")
    checked(view)
    for harmless in (
        "add columns (later string)", "drop column note", "alter column spare type bigint",
        "alter column v comment 'what it costs'", "rename column later to latest",
    ):  # fmt: skip
        delta.sql(f"alter table {{t}} {harmless}")
        delta.sql("insert into {t} (k, v) values (1, -5)")
        if long:
            assert checked(view).verdict == "applied", harmless
    checked(view)
    delta.sql("alter table {t} alter column v type bigint")
    report = checked(view)
    assert (report.generation, report.because[0]) == (2, "column v of source t changed from int to bigint")
    delta.sql("alter table {t} rename column v to w")
    for again in (view, delta.view(view.query, on_change="rebuild")):
        with pytest.raises(QueryError, match=r"column v of source t was dropped or renamed. Restore it"):
            again.refresh()
        assert rows(again) == [(1, -24), (2, -2)]
    wide = delta.view("select k, latest from t", "wide")
    checked(wide)
    with pytest.raises(SourceError, match="source t: no column latest at version 1"):
        wide.refresh({"t": 1})


def test_a_table_written_anew_with_another_schema(sandbox: MemorySandbox) -> None:
    """Also part by part, where columns that were data became partitions and the other way round."""
    sandbox.source("t", "k int, v int, p int", [(1, 1, 1), (2, 2, 2)])
    view = sandbox.view("select k, p, sum(v) s from t group by k, p")
    checked(view)
    for column, rewritten in ("p", [(1, 1, 1), (3, 3, 3)]), ("k", [(1, 1, 2), (4, 4, 4)]), (None, [(5, 5, 5)]):
        frame = sandbox.spark.createDataFrame(rewritten, "k int, v int, p int")
        sandbox.write("t", frame, "reshape", column)
        checked(view, chunk=1)
    frame = sandbox.spark.createDataFrame([("5", 5, 5)], "k string, v int, p int")
    sandbox.write("t", frame, "reshape")
    assert "column k of source t changed from int to string" in refusal(view)
    other = sandbox.view("select k from t", "other")
    checked(other)
    with pytest.raises(SourceError, match=r"source t: k as int at version 0, where .* reads k as string"):
        other.refresh({"t": 0})


def test_an_invariant_source_gets_a_column(sandbox: MemorySandbox) -> None:
    """That the query does not read; a row that changed in what it reads is still refused."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    sandbox.source("d", "k int, name string", [(1, "one")], invariant=True)
    view = sandbox.view("select name, sum(v) s from t left join d on t.k = d.k group by name")
    checked(view)
    sandbox.sql("alter table {d} add column more int")
    sandbox.sql("update {d} set more = 7")
    sandbox.sql("insert into {t} values (1, 10)")
    checked(view)
    sandbox.sql("update {d} set name = 'uno'")
    with pytest.raises(SourceError, match="source d: declared invariant, but changed"):
        view.refresh()
