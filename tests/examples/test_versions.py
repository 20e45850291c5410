"""Versions of sources: changes that are none, refreshes to chosen versions, sources that are not what they were."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from incremental.algebra.errors import ChangedQueryError, QueryError, SourceError
from incremental.api import Delta, View, Warehouse
from incremental.lake.physical_layout import Storage
from tests.examples.scene import Scene, checked, confirm, rows

QUERY = "select k, sum(v) s, min(v) lo from t group by k"


def test_empty_changes(scene: Scene) -> None:
    """Nothing was committed, nothing was in it, or nothing came of it: no epoch, and the report says so."""
    scene.source("t", "k int, v int", [(1, 1), (1, 2), (2, 3)])
    views = [scene.view(QUERY), scene.view("select k, v from t where v > 1", "bag")]
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
            scene.sql(change)
        for view in views:
            report = checked(view)
            assert (report.verdict, report.epoch, report.commits) == ("nothing to do", 1, 0), change
    scene.sql("insert into {t} values (2, 1)")
    assert [checked(view).epoch for view in views] == [2, 1]
    assert len(views[0].history()) == 2


def test_change_and_its_undoing_between_two_refreshes(scene: Scene) -> None:
    """Only the difference of the two versions counts."""
    scene.source("t", "k int, v int", [(1, 1), (2, 3)])
    view = scene.view(QUERY)
    checked(view)
    scene.sql("update {t} set v = 100")
    scene.sql("insert into {t} values (5, 5)")
    scene.sql("delete from {t}")
    scene.insert("t", "k int, v int", [(2, 3), (1, 1)])
    assert checked(view).verdict == "nothing to do"


def test_refresh_to_older_and_newer_versions(scene: Scene) -> None:
    """Any version that can be read is a place to go, forwards or back."""
    scene.source("t", "k int, v int", [(1, 1)])
    view = scene.view(QUERY)
    scene.sql("insert into {t} values (1, -4), (2, 2)")
    scene.sql("delete from {t} where k = 1 and v = 1")
    scene.sql("update {t} set k = 3 where k = 2")
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


def test_source_dropped_and_recreated(scene: Scene) -> None:
    """Versions of another table must not be taken for those of the first."""
    scene.source("t", "k int, v int", [(1, 1)])
    view = scene.view(QUERY)
    checked(view)
    for file in sorted((scene.folder / "t").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    scene.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    scene.insert("t", "k int, v int", [(7, 7)])
    scene.insert("t", "k int, v int", [(8, 8)])
    for ask in (view.refresh, view.verify):
        with pytest.raises(SourceError, match=r"source t at .* was dropped and created anew, or .*: rebuild the view"):
            ask()
    assert view.rebuild().generation == 2
    confirm(view)
    assert rows(view) == [(7, 7, 7), (8, 8, 8)]


@pytest.mark.parametrize("more", [0, 1])
def test_a_source_that_was_restored_from_a_copy(scene: Scene, more: int) -> None:
    """It has the same id, and as many versions or more: what it was at the last epoch it never was by its own log."""
    scene.source("t", "k int, v int", [(1, 1)])
    table, copy = Path(scene.path("t")), scene.folder / "copy"
    shutil.copytree(table, copy)
    scene.insert("t", "k int, v int", [(2, 20)])
    view = scene.view(QUERY)
    checked(view)
    shutil.rmtree(table)
    shutil.copytree(copy, table)
    with pytest.raises(SourceError, match="can no longer be read"):
        view.verify()
    for i in range(1 + more):
        scene.insert("t", "k int, v int", [(3, 30 + i)])
    for _ in range(2):
        with pytest.raises(SourceError, match=r"source t at .* its history was replaced.* rebuild the view"):
            view.refresh()
    view.rebuild()
    confirm(view)
    shutil.rmtree(copy)
    shutil.copytree(table, copy)
    shutil.rmtree(table)
    shutil.copytree(copy, table)
    assert checked(view).verdict == "nothing to do"  # as it was


def test_a_table_that_was_replaced_by_one_of_as_many_versions(scene: Scene) -> None:
    """Delta keeps the snapshot of a version, and would give it again: a branch named like a dropped one was read so."""
    folder, table = scene.folder / "replaced", Storage(scene.spark, str(scene.folder / "replaced"))
    for count in (1, 2, 3):
        other = folder.with_name("other")
        scene.spark.range(count).write.format("delta").save(str(other))
        shutil.rmtree(folder, ignore_errors=True)
        other.rename(folder)
        assert (table.at(0).count(), table.scanned(0).count()) == (count, count)


def test_vacuumed_version(scene: Scene) -> None:
    """The files that the change would be read from are gone: a sentence, and rebuilding helps."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2)])
    view = scene.view(QUERY)
    checked(view)
    scene.insert("t", "k int, v int", [(1, 5), (3, 3)], mode="overwrite")
    scene.vacuum("t")
    with pytest.raises(SourceError, match=r"of source t \(versions 0 to 3\) is gone .VACUUM removed it"):
        view.refresh()
    assert rows(view) == [(1, 1, 1), (2, 2, 2)]
    view.rebuild()
    confirm(view)
    scene.sql("insert into {t} values (3, 4)")
    checked(view)


def test_invariant_source_that_changes(scene: Scene) -> None:
    """Its joins have no term for it: refused until a rebuild takes the change in; a compaction is none."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2)])
    scene.source("d", "k int, name string", [(1, "one")], invariant=True)
    view = scene.view("select name, sum(v) s from t left join d on t.k = d.k group by name")
    checked(view)
    scene.sql("insert into {d} select * from {d} where false")
    scene.sql("update {d} set name = name")
    scene.sql("insert into {t} values (1, 10)")
    checked(view)
    scene.sql("insert into {d} values (2, 'two')")
    with pytest.raises(SourceError, match=r"source d is declared invariant but changed .* rebuild the view"):
        view.refresh()
    view.rebuild()
    confirm(view)
    assert rows(view) == [("one", 11), ("two", 2)]
    scene.sql("insert into {t} values (2, 10)")
    checked(view)


def test_changed_query(scene: Scene) -> None:
    """A state of another query is never merged into; rebuilding starts a new generation."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2)])
    checked(scene.view(QUERY))
    changed = scene.view(QUERY.replace("sum(v)", "sum(v + 1)"))
    scene.sql("insert into {t} values (2, 3)")
    with pytest.raises(
        ChangedQueryError,
        match=r"the query of view v, or a column it reads, changed .* rebuild the view, or restore what changed",
    ):
        changed.refresh()
    report = changed.rebuild()
    assert (report.verdict, report.generation, report.epoch) == ("rebuilt", 2, 1)
    confirm(changed)
    scene.sql("delete from {t} where v = 3")
    assert checked(changed).generation == 2


def test_new_column_in_a_source(scene: Scene) -> None:
    """A column that the query does not read changes nothing."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2)])
    checked(scene.view(QUERY))
    scene.sql("alter table {t} add column extra string")
    scene.sql("insert into {t} values (2, 3, 'x')")
    again = fresh(scene)
    checked(again)
    scene.sql("update {t} set extra = 'y'")
    assert checked(again).verdict == "nothing to do"


def test_names_that_come_to_mean_other_columns(scene: Scene) -> None:
    """With column mapping a commit without files changes every row: names swapped, or one dropped and added again."""
    scene.sql(
        f"create table delta.`{scene.path('t')}` (k string, b struct<c: int, d: int>, a int) using delta "
        "tblproperties ('delta.columnMapping.mode' = 'name')"
    )
    scene.sql("insert into {t} select 'x', struct(1, 10), 1 union all select 'y', struct(3, 30), 3")
    scene.warehouse.source("t", Delta(scene.path("t")))
    views = [
        scene.view("select k, a, b.c from t where k is not null"),
        scene.view("select k, sum(a) s from t group by k", "w"),
    ]
    scene.sql("alter table {t} rename column b.c to e")
    with pytest.raises(QueryError, match="No such struct field `c`"):
        views[0].refresh()
    scene.sql("alter table {t} rename column b.d to c")
    scene.sql("alter table {t} rename column b.e to d")
    checked(views[0])
    scene.sql("alter table {t} drop column a")
    scene.sql("alter table {t} add column a int")
    for view in views:
        checked(view)
    scene.sql("delete from {t} where k = 'x'")
    for view in views:
        checked(view)
    assert rows(views[0]) == [("y", None, 30)]


def test_columns_with_defaults(scene: Scene) -> None:
    """What Delta notes beside a column is no part of its type."""
    scene.source("t", "k int, v int", [(1, 1)])
    scene.sql("alter table {t} set tblproperties ('delta.feature.allowColumnDefaults' = 'supported')")
    scene.sql("alter table {t} alter column v set default 99")
    view = scene.view(QUERY)
    checked(view)
    scene.sql("insert into {t} (k) values (1)")
    checked(view)
    assert rows(view)[0][1] == 100


def test_values_in_the_query_are_part_of_it(scene: Scene) -> None:
    """A changed constant table must not pass for the old one."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2)])
    query = "select n, sum(v) s from t join values (1, 'one'), (2, 'two') as x (m, n) on k = m group by n"
    checked(scene.view(query))
    with pytest.raises(ChangedQueryError):
        scene.view(query.replace("'two'", "'zwei'")).refresh()


def fresh(scene: Scene) -> View:
    """The view as another process opens it."""
    warehouse = Warehouse(scene.spark, scene.folder / "warehouse")
    warehouse.source("t", Delta(scene.path("t")))
    return warehouse.view("v", QUERY)


def test_a_table_is_read_in_the_session_of_its_warehouse(scene: Scene) -> None:
    """Delta takes the thread's active session unless told; another one has other settings and temporary views."""
    scene.source("t", "k int, v int", [(1, 1)])
    other = scene.spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    warehouse = Warehouse(other, scene.folder / "other")
    warehouse.source("t", Delta(scene.path("t")))
    scene.spark.createDataFrame([(1,)], "a int").collect()  # makes the first session the active one
    table = warehouse.tables()["t"]
    for frame in (table.at(0), table.rows_of(0, list(table.files(0).values()))):
        frame.createOrReplaceTempView("seen")
        assert other.sql("select k, v, current_timezone() from seen").collect() == [(1, 1, "Asia/Tokyo")]
        other.catalog.dropTempView("seen")


@pytest.fixture
def compacted(scene: Scene) -> list[View]:
    """Two views of a table that got deletion vectors since, and was compacted."""
    scene.source("t", "k int, v int", [(i % 5, i) for i in range(40)])
    views = [scene.view(QUERY), scene.view("select k, v from t where v > 1", "bag")]
    for view in views:
        checked(view)
    scene.sql("update {t} set v = v + 1 where k < 2")
    scene.sql("optimize {t}")
    return views


def test_a_compaction_that_is_taken_back(scene: Scene, compacted: list[View]) -> None:
    """The files from before it come a second time, which a list of what came and left cannot say."""
    scene.sql("restore table {t} to version as of 1")
    for view in compacted:
        assert view.status().lag["t"].versions == 3
        checked(view)
    scene.sql("restore table {t} to version as of 2")
    for view in compacted:
        checked(view)


def test_a_file_from_before_a_compaction_that_is_taken_back_changes_again(scene: Scene, compacted: list[View]) -> None:
    """It came with one deletion vector, and comes with another: its rows were read by what only one of them leaves."""
    scene.sql("restore table {t} to version as of 0")
    scene.sql("delete from {t} where k = 3")
    checked(compacted[0])
    scene.vacuum("t")  # of what the compaction made, too
    checked(compacted[1])


@pytest.mark.parametrize("after", ["repartitioned", "repartitioned before"])
def test_a_table_that_is_partitioned_anew_beside_a_compaction(scene: Scene, after: str) -> None:
    """A file is read by the partitions of its time: in another's, the column that is not in it would be NULL."""
    scene.source("t", "k int, day string", [(1, "a"), (2, "b"), (3, "c")])
    view = scene.view("select day, count(*) n, sum(k) s from t group by day")
    checked(view)

    def repartition() -> None:
        table = scene.spark.read.format("delta").load(scene.path("t")).localCheckpoint()
        writer = table.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.partitionBy("day").save(scene.path("t"))

    if after == "repartitioned before":
        repartition()
    scene.insert("t", "k int, day string", [(4, "a"), (5, "c")])
    scene.sql("optimize {t}")
    if after == "repartitioned":
        repartition()
    scene.sql("delete from {t} where day = 'a'")
    checked(view)


def test_a_source_that_is_declared_no_more(scene: Scene) -> None:
    """Where the view stands cannot be told without it; the rest of the warehouse can."""
    scene.source("t", "k int, v int", [(1, 2)])
    checked(scene.view(QUERY))
    warehouse = Warehouse(scene.spark, scene.folder / "warehouse")
    warehouse.source("u", Delta(scene.path("t")))
    with pytest.raises(SourceError, match="last refreshed from source t, which is not declared any more"):
        warehouse.view("v", QUERY.replace("from t", "from u")).status()


def test_rows_that_were_never_together(scene: Scene) -> None:
    """The batch query never divides by the zero that was there before; that a refresh does is said, with a way out."""
    scene.source("l", "k int, x int", [(1, 10)])
    scene.source("r", "k int, y int", [(1, 5), (2, 0)])
    view = scene.view("select l.k, x / y q from l join r on l.k = r.k")
    checked(view)
    scene.sql("update {r} set y = 7 where k = 2")
    scene.sql("insert into {l} values (2, 14)")
    with pytest.raises(SourceError, match=r"DIVIDE_BY_ZERO.* never there together: .* Rebuild the view"):
        view.refresh()
    view.rebuild()
    confirm(view)
