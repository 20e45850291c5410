"""Versions of sources: changes that are none, refreshes to chosen versions, sources that are not what they were."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deltafold.algebra.errors import ChangedQueryError, QueryError, SourceError
from deltafold.api import Delta, View, Warehouse
from deltafold.lake.delta_table import DeltaTable
from tests.night import night
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, confirm, rows

QUERY = "select k, sum(v) s, min(v) lo from t group by k"


def test_empty_changes(sandbox: MemorySandbox) -> None:
    """Nothing was committed, nothing was in it, or nothing came of it: no epoch, and the report says so."""
    sandbox.source("t", "k int, v int", [(1, 1), (1, 2), (2, 3)])
    views = [sandbox.view(QUERY), sandbox.view("select k, v from t where v > 1", "bag")]
    for view in views:
        checked(view)
    for change in (
        "",
        "delete from {t} where false",
        "insert into {t} select * from {t} where false",
        "update {t} set v = v",
        "optimize {t}",
    ):
        if change:
            sandbox.sql(change)
        for view in views:
            report = view.refresh()
            assert (report.verdict, report.epoch, report.commits) == ("nothing to do", 1, 0), change
    for view in views:
        confirm(view)
    sandbox.sql("insert into {t} values (2, 1)")
    assert [checked(view).epoch for view in views] == [2, 1]
    assert len(views[0].history()) == 2


@night
def test_change_and_its_undoing_between_two_refreshes(sandbox: MemorySandbox) -> None:
    """Only the difference of the two versions counts."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 3)])
    view = sandbox.view(QUERY)
    checked(view)
    sandbox.sql("update {t} set v = 100")
    sandbox.sql("insert into {t} values (5, 5)")
    sandbox.sql("delete from {t}")
    sandbox.insert("t", "k int, v int", [(2, 3), (1, 1)])
    assert checked(view).verdict == "nothing to do"


def test_refresh_to_older_and_newer_versions(sandbox: MemorySandbox) -> None:
    """Any version that can be read is a place to go, forwards or back."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    view = sandbox.view(QUERY)
    sandbox.sql("insert into {t} values (1, -4), (2, 2)")
    sandbox.sql("delete from {t} where k = 1 and v = 1")
    sandbox.sql("update {t} set k = 3 where k = 2")
    expected = {
        0: [(1, 1, 1)], 1: [(1, -3, -4), (2, 2, 2)], 2: [(1, -4, -4), (2, 2, 2)], 3: [(1, -4, -4), (3, 2, 2)],
    }  # fmt: skip
    for version in (1, 3, 0, 2):
        report = checked(view, versions={"t": version})
        assert report.versions["t"][1] == version
        assert rows(view) == expected[version]
    checked(view)
    assert rows(view) == expected[3]
    with pytest.raises(SourceError, match=r"source t has no version 9: its latest is 3"):
        view.refresh(versions={"t": 9})


def test_source_dropped_and_recreated(sandbox: MemorySandbox) -> None:
    """Versions of another table must not be taken for those of the first."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    view = sandbox.view(QUERY)
    checked(view)
    sandbox.remove("t")
    sandbox.insert("t", "k int, v int", [(7, 7)])
    sandbox.insert("t", "k int, v int", [(8, 8)])
    for ask in (view.refresh, view.verify):
        with pytest.raises(SourceError, match=r"source t at .* was dropped and created again, or .*. Rebuild the view"):
            ask()
    assert view.rebuild().generation == 2
    confirm(view)
    assert rows(view) == [(7, 7, 7), (8, 8, 8)]


@pytest.mark.parametrize("more", [0, pytest.param(1, marks=night)])
def test_a_source_that_was_restored_from_a_copy(sandbox: MemorySandbox, more: int) -> None:
    """It has the same id, and as many versions or more: what it was at the last epoch it never was by its own log."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    table, copy = Path(sandbox.path("t")), sandbox.folder / "copy"
    shutil.copytree(table, copy)
    sandbox.insert("t", "k int, v int", [(2, 20)])
    view = sandbox.view(QUERY)
    checked(view)
    shutil.rmtree(table)
    shutil.copytree(copy, table)
    with pytest.raises(SourceError, match="its history was replaced"):
        view.verify()
    for i in range(1 + more):
        sandbox.insert("t", "k int, v int", [(3, 30 + i)])
    for _ in range(2):
        with pytest.raises(SourceError, match=r"source t at .* its history was replaced.* Rebuild the view"):
            view.refresh()
    view.rebuild()
    confirm(view)
    shutil.rmtree(copy)
    shutil.copytree(table, copy)
    shutil.rmtree(table)
    shutil.copytree(copy, table)
    assert checked(view).verdict == "nothing to do"  # as it was


@night
def test_a_table_that_was_replaced_by_one_of_as_many_versions(delta: DeltaSandbox) -> None:
    """Delta keeps the snapshot of a version, and would give it again: a branch named like a dropped one was read so."""
    folder, table = delta.folder / "replaced", DeltaTable(delta.spark, str(delta.folder / "replaced"))
    for count in (1, 2, 3):
        other = folder.with_name("other")
        delta.spark.range(count).write.format("delta").save(str(other))
        shutil.rmtree(folder, ignore_errors=True)
        other.rename(folder)
        assert (table.at(0).count(), table.scan(0).count()) == (count, count)


@night
def test_vacuumed_version(delta: DeltaSandbox) -> None:
    """The files that the change would be read from are gone: a sentence, and rebuilding helps."""
    delta.source("t", "k int, v int", [(1, 1), (2, 2)])
    view = delta.view(QUERY)
    checked(view)
    delta.insert("t", "k int, v int", [(1, 5), (3, 3)], mode="overwrite")
    delta.vacuum("t")
    with pytest.raises(SourceError, match=r"source t \(versions 0 to 3\): a data file is gone .VACUUM removed it"):
        view.refresh()
    assert rows(view) == [(1, 1, 1), (2, 2, 2)]
    view.rebuild()
    confirm(view)
    delta.sql("insert into {t} values (3, 4)")
    checked(view)


@night
def test_invariant_source_that_changes(sandbox: MemorySandbox) -> None:
    """Its joins have no term for it: refused until a rebuild takes the change in; a compaction is none."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    sandbox.source("d", "k int, name string", [(1, "one")], invariant=True)
    view = sandbox.view("select name, sum(v) s from t left join d on t.k = d.k group by name")
    checked(view)
    sandbox.sql("insert into {d} select * from {d} where false")
    sandbox.sql("update {d} set name = name")
    sandbox.sql("insert into {t} values (1, 10)")
    checked(view)
    sandbox.sql("insert into {d} values (2, 'two')")
    with pytest.raises(
        SourceError, match=r"source d: declared invariant, but changed .*, from 1 to 2 rows. Rebuild the view"
    ):
        view.refresh()
    view.rebuild()
    confirm(view)
    assert rows(view) == [("one", 11), ("two", 2)]
    sandbox.sql("insert into {t} values (2, 10)")
    checked(view)


def test_changed_query(sandbox: MemorySandbox) -> None:
    """A state of another query is never merged into; rebuilding starts a new generation."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    checked(sandbox.view(QUERY))
    changed = sandbox.view(QUERY.replace("sum(v)", "sum(v + 1)"))
    sandbox.sql("insert into {t} values (2, 3)")
    with pytest.raises(
        ChangedQueryError,
        match=r"view v: the query, or a column that it reads, changed .* Rebuild the view .* or restore what changed",
    ):
        changed.refresh()
    report = changed.rebuild()
    assert (report.verdict, report.generation, report.epoch) == ("rebuilt", 2, 1)
    confirm(changed)
    sandbox.sql("delete from {t} where v = 3")
    assert checked(changed).generation == 2


def test_new_column_in_a_source(sandbox: MemorySandbox) -> None:
    """A column that the query does not read changes nothing."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    checked(sandbox.view(QUERY))
    sandbox.sql("alter table {t} add column extra string")
    sandbox.sql("insert into {t} values (2, 3, 'x')")
    again = fresh(sandbox)
    checked(again)
    sandbox.sql("update {t} set extra = 'y'")
    assert checked(again).verdict == "nothing to do"


@night
def test_names_that_come_to_mean_other_columns(delta: DeltaSandbox) -> None:
    """With column mapping a commit without files changes every row: names swapped, or one dropped and added again."""
    delta.sql(
        f"create table delta.`{delta.path('t')}` (k string, b struct<c: int, d: int>, a int) using delta "
        "tblproperties ('delta.columnMapping.mode' = 'name')"
    )
    delta.sql("insert into {t} select 'x', struct(1, 10), 1 union all select 'y', struct(3, 30), 3")
    delta.warehouse.source("t", Delta(delta.path("t")))
    views = [
        delta.view("select k, a, b.c from t where k is not null"),
        delta.view("select k, sum(a) s from t group by k", "w"),
    ]
    delta.sql("alter table {t} rename column b.c to e")
    with pytest.raises(QueryError, match="No such struct field `c`"):
        views[0].refresh()
    delta.sql("alter table {t} rename column b.d to c")
    delta.sql("alter table {t} rename column b.e to d")
    checked(views[0])
    delta.sql("alter table {t} drop column a")
    delta.sql("alter table {t} add column a int")
    for view in views:
        checked(view)
    delta.sql("delete from {t} where k = 'x'")
    for view in views:
        checked(view)
    assert rows(views[0]) == [("y", None, 30)]


@night
def test_columns_with_defaults(delta: DeltaSandbox) -> None:
    """What Delta notes beside a column is no part of its type."""
    delta.source("t", "k int, v int", [(1, 1)])
    delta.sql("alter table {t} set tblproperties ('delta.feature.allowColumnDefaults' = 'supported')")
    delta.sql("alter table {t} alter column v set default 99")
    view = delta.view(QUERY)
    checked(view)
    delta.sql("insert into {t} (k) values (1)")
    checked(view)
    assert rows(view)[0][1] == 100


@night
def test_values_in_the_query_are_part_of_it(sandbox: MemorySandbox) -> None:
    """A changed constant table must not pass for the old one."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    query = "select n, sum(v) s from t join values (1, 'one'), (2, 'two') as x (m, n) on k = m group by n"
    checked(sandbox.view(query))
    with pytest.raises(ChangedQueryError):
        sandbox.view(query.replace("'two'", "'zwei'")).refresh()


def fresh(sandbox: MemorySandbox) -> View:
    """The view as another process opens it."""
    warehouse = sandbox.opened()
    warehouse.source("t", Delta(sandbox.path("t")))
    return warehouse.view("v", QUERY)


def test_a_table_is_read_in_the_session_of_its_warehouse(delta: DeltaSandbox) -> None:
    """Delta takes the thread's active session unless told; another one has other settings and temporary views."""
    delta.source("t", "k int, v int", [(1, 1)])
    other = delta.spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    warehouse = Warehouse(other, delta.folder / "other")
    warehouse.source("t", Delta(delta.path("t")))
    delta.spark.createDataFrame([(1,)], "a int").collect()  # makes the first session the active one
    table = warehouse.tables()["t"]
    for frame in (table.at(0), table.rows_of(0, list(table.files(0).values()))):
        frame.createOrReplaceTempView("seen")
        assert other.sql("select k, v, current_timezone() from seen").collect() == [(1, 1, "Asia/Tokyo")]
        other.catalog.dropTempView("seen")


@night
def test_a_source_that_is_declared_no_more(sandbox: MemorySandbox) -> None:
    """Where the view stands cannot be told without it; the rest of the warehouse can."""
    sandbox.source("t", "k int, v int", [(1, 2)])
    checked(sandbox.view(QUERY))
    warehouse = sandbox.opened()
    warehouse.source("u", Delta(sandbox.path("t")))
    status = warehouse.view("v", QUERY.replace("from t", "from u")).status()
    assert "last refreshed from source t, which is no longer declared. Rebuild the view" in status.problems["t"]


@night
def test_rows_that_were_never_together(sandbox: MemorySandbox) -> None:
    """The batch query never divides by the zero that was there before; that a refresh does is said, with a way out."""
    sandbox.source("l", "k int, x int", [(1, 10)])
    sandbox.source("r", "k int, y int", [(1, 5), (2, 0)])
    view = sandbox.view("select l.k, x / y q from l join r on l.k = r.k")
    checked(view)
    sandbox.sql("update {r} set y = 7 where k = 2")
    sandbox.sql("insert into {l} values (2, 14)")
    with pytest.raises(SourceError, match=r"DIVIDE_BY_ZERO.* never met in one version.* Rebuild the view"):
        view.refresh()
    view.rebuild()
    confirm(view)


def test_an_error_that_the_query_raises_is_the_datas(sandbox: MemorySandbox) -> None:
    """Protects from calling Deltafold broken where a query refuses a row on purpose."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    view = sandbox.view("select k, if(v < 0, raise_error('negative'), v) v from t")
    checked(view)
    sandbox.sql("insert into {t} values (2, -1)")
    with pytest.raises(SourceError, match="Spark could not run the refresh: negative"):
        view.refresh()
