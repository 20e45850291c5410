"""A query, a function, a setting or a source's column that is another one than when the state was built."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.errors import ChangedQueryError, QueryError, SourceError, StateError
from incremental.api import Delta, View, Warehouse
from incremental.refresh import incremental_refresh
from tests.examples.scene import Scene, checked, confirm, rows

QUERY = "select k, sum(x) s from (select k, v + 1 as x from t where v < 100) q group by k"
ZONE = "spark.sql.session.timeZone"


def refusal(view: View) -> str:
    """Why a view is not refreshed."""
    with pytest.raises(ChangedQueryError) as found:
        view.refresh()
    return str(found.value)


def test_a_setting_that_changes_between_two_refreshes(scene: Scene) -> None:
    """Also of a view that is open: rows of before and after would stand in two time zones."""
    scene.source("t", "v bigint", [(1_714_593_600,)])
    view = scene.view("select date(timestamp_seconds(v)) d, count(*) n from t group by date(timestamp_seconds(v))")
    view.refresh()
    scene.sql("insert into {t} values (1714597200)")
    zone = scene.spark.conf.get(ZONE)
    scene.spark.conf.set(ZONE, "Asia/Tokyo")
    try:
        assert f"setting {ZONE} changed from {zone} to Asia/Tokyo" in refusal(view)
    finally:
        scene.spark.conf.set(ZONE, str(zone))
    assert checked(view).verdict == "applied"


def test_the_difference_is_said(scene: Scene) -> None:
    """In the terms of the query, and not of fingerprints; a state of an older release has none to tell."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2)])
    checked(scene.view(QUERY))
    changed = scene.view(QUERY.replace("v < 100", "v < 200").replace("sum(x) s", "max(x) s"))
    assert refusal(changed).splitlines() == [
        "the query of view v, or a column it reads, changed since its state was built: rebuild the view, or restore "
        "what changed",
        "  answer column: - s bigint",
        "  answer column: + s int",
        "  - group by k: sum(x)",
        "  + group by k: max(x)",
        "  - filter (v < 100)",
        "  + filter (v < 200)",
    ]
    zone = scene.spark.conf.get(ZONE)
    scene.spark.conf.set(ZONE, "Asia/Tokyo")
    scene.spark.conf.set("spark.sql.legacy.sizeOfNull", "false")
    assert refusal(scene.view(QUERY)).splitlines()[1:] == [
        f"  setting {ZONE} changed from {zone} to Asia/Tokyo",
        "  setting spark.sql.legacy.sizeOfNull changed from not set to false",
    ]
    scene.spark.conf.unset("spark.sql.legacy.sizeOfNull")
    scene.spark.conf.set(ZONE, str(zone))
    for file in (scene.folder / "warehouse" / "views" / "v" / "journal").glob("query-*"):
        file.unlink()
    assert "the release that built the state did not record it" in refusal(changed)
    assert checked(scene.view(QUERY)).verdict == "nothing to do"
    assert "+ filter (v < 200)" in refusal(changed)


def test_a_function_with_another_body(scene: Scene) -> None:
    """By its name; what stands around it is no change."""

    def by(clean: Callable[[Any], Any]) -> Callable[[DataFrame], DataFrame]:
        return lambda t: t.select(F.udf(clean)("v").alias("c")).groupBy("c").count()

    def clean(value: Any) -> Any:  # pyright: ignore[reportRedeclaration]
        return value % 2

    first = by(clean)

    def clean(value: Any) -> Any:  # pyright: ignore[reportRedeclaration]
        """The same, further down."""
        return (
            value % 2
        )  # fmt: skip

    scene.source("t", "k int, v int", [(1, 1), (2, 2)])
    checked(scene.view(first))
    assert checked(scene.view(by(clean))).verdict == "nothing to do"

    def clean(value: Any) -> Any:  # pyright: ignore[reportRedeclaration]
        return value % 3

    assert refusal(scene.view(by(clean))).splitlines()[1:] == ["  Python function clean changed"]


@pytest.mark.parametrize(
    ("query", "alike"),
    [
        (
            QUERY,
            "-- all\nSELECT k,\n  sum(y) AS s\nFROM (SELECT k, v+1 y FROM t WHERE v<100) AS r GROUP BY k",
        ),
        (
            "select max(n) hi from (select k % 2 as m, count(*) as n from t group by k % 2) q",
            "with c as (select k % 2 as parity, count(1) as number from t group by 1) select max(number) as hi from c",
        ),
    ],
)
def test_names_and_looks_are_no_change(scene: Scene, query: str, alike: str) -> None:
    """Nor are names within a query, though a state has columns that are named by them."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2), (3, 3)])
    checked(scene.view(query))
    scene.sql("insert into {t} values (3, 4), (4, 4)")
    report = checked(scene.view(alike))
    assert (report.verdict, report.generation, report.epoch) == ("applied", 1, 2)
    scene.sql("delete from {t} where k = 3")
    assert checked(scene.view(query)).epoch == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("from_json(s, 'x date', map('dateFormat', 'd')).x", "from_json(s, 'x date', map('dateFormat', 'M')).x"),
        ("from_csv(s, 'x int', map('sep', ';')).x", "from_csv(s, 'x int', map('sep', ',')).x"),
        ("to_csv(struct(s, k), map('sep', ';'))", "to_csv(struct(s, k), map('sep', ','))"),
        ("approx_count_distinct(k, 0.05)", "approx_count_distinct(k, 0.01)"),
        ("percentile_cont(0.1) within group (order by k)", "percentile_cont(0.1) within group (order by k desc)"),
    ],
)  # fmt: skip
def test_what_sparks_own_text_leaves_out(scene: Scene, one: str, other: str) -> None:
    """Options that Spark does not print are part of the query, and tell two expressions of one query apart."""
    scene.source("t", "k int, s string", [(1, "1;2")])
    views = [scene.view(f"select s, {what} c from t group by s, k") for what in (one, other)]
    assert views[0].description().fingerprint != views[1].description().fingerprint


def test_two_expressions_that_print_alike(scene: Scene) -> None:
    scene.source("t", "s string", [("1;2",)])
    both = [f"sum(from_csv(s, 'x int, y int', map('sep', '{sep}')).y)" for sep in (";", ",")]
    view = scene.view(f"select {both[0]} a, {both[1]} b from t")
    checked(view)
    assert rows(view) == [(2, None)]


def test_rebuilt_by_policy(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new generation beside the old one, which readers keep until the switch; the report says why."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2), (2, 3)])
    nested = "select k, count(*) n from (select k, v from t group by k, v) q group by k having count(*) > 0"
    old = scene.view(nested)
    checked(old)
    scene.sql("insert into {t} values (2, 7)")
    before = [(1, 1), (2, 2)]
    new = scene.view("select k, v, count(*) n from t group by k, v", on_change="rebuild")
    assert rows(new) == before
    with pytest.raises(ChangedQueryError, match="rebuild the view before it is verified"):
        new.verify()
    with monkeypatch.context() as crash:
        crash.setattr(incremental_refresh.Incremental, "run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            new.refresh()
    assert rows(new) == before == rows(old)
    report = checked(new)
    assert (report.verdict, report.generation, report.epoch) == ("resumed", 2, 1)
    assert "changed since its state was built" in report.sentence
    assert "answer column: + v int" in report.because
    scene.sql("delete from {t} where k = 1")
    assert (checked(new).verdict, new.history()[-1].because) == ("applied", ())
    report = checked(scene.view(nested, on_change="rebuild"))
    assert (report.verdict, report.generation, report.because[0]) == ("rebuilt", 3, "answer column: - v int")
    with pytest.raises(QueryError, match=r"on_change cannot be 'shout': use refuse or rebuild"):
        scene.view(nested, on_change="shout")


def test_a_view_below_is_rebuilt_by_its_own_policy(scene: Scene) -> None:
    """What reads it gets the difference of its two answers."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2), (2, 3)])

    def above(query: str, on_change: Any) -> View:
        warehouse = Warehouse(scene.spark, scene.folder / "warehouse")
        warehouse.source("t", Delta(scene.path("t")))
        warehouse.source("low", warehouse.view("low", query, on_change=on_change))
        return warehouse.view("high", "select sum(s) total, count(*) n from low")

    sums, most = (f"select k, {what}(v) s from t where v > 0 group by k" for what in ("sum", "max"))
    most = most.replace("max(v)", "cast(max(v) as bigint)")
    first = above(sums, "refuse")
    first.refresh()
    with pytest.raises(ChangedQueryError, match="the query of view low"):
        above(most, "refuse").refresh()
    changed = above(most, "rebuild")
    report = changed.refresh()
    assert [(each.view, each.verdict, each.generation) for each in report.below] == [("low", "rebuilt", 2)]
    assert rows(changed) == [(4, 2)]
    assert changed.verify().ok


def test_columns_of_a_source(scene: Scene) -> None:
    """What the query does not read may change; what it reads is named."""
    scene.sql(
        f"create table delta.`{scene.path('t')}` (k int, v int, spare int, note string) using delta tblproperties "
        "('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    scene.sql("insert into {t} values (1, 1, 1, 'a'), (2, -2, 2, 'b')")
    scene.declare("t")
    view = scene.view("select k, sum(v) s from t group by k")
    checked(view)
    for harmless in (
        "add columns (later string)", "drop column note", "alter column spare type bigint",
        "alter column v comment 'what it costs'", "rename column later to latest",
    ):  # fmt: skip
        scene.sql(f"alter table {{t}} {harmless}")
        scene.sql("insert into {t} (k, v) values (1, -5)")
        assert checked(view).verdict == "applied", harmless
    scene.sql("alter table {t} alter column v type bigint")
    assert "column v of source t changed from int to bigint" in refusal(view)
    assert (
        checked(scene.view(view.query, on_change="rebuild")).because[0]
        == "column v of source t changed from int to bigint"
    )
    with pytest.raises(SourceError, match=r"source t has v as int at version 1, where .* reads v as bigint"):
        view.refresh({"t": 1})
    scene.sql("alter table {t} rename column v to w")
    for again in (view, scene.view(view.query, on_change="rebuild")):
        with pytest.raises(QueryError, match="column v of source t was dropped or renamed: restore it"):
            again.refresh()
        assert rows(again) == [(1, -24), (2, -2)]
    wide = scene.view("select k, latest from t", "wide")
    checked(wide)
    with pytest.raises(SourceError, match="source t has no column latest at version 1"):
        wide.refresh({"t": 1})


def test_a_table_written_anew_with_another_schema(scene: Scene) -> None:
    """Also part by part, where columns that were data became partitions and the other way round."""
    scene.source("t", "k int, v int, p int", [(1, 1, 1), (2, 2, 2)])
    view = scene.view("select k, p, sum(v) s from t group by k, p")
    checked(view)
    for columns, rewritten in (("p",), [(1, 1, 1), (3, 3, 3)]), (("k",), [(1, 1, 2), (4, 4, 4)]), ((), [(5, 5, 5)]):
        frame = scene.spark.createDataFrame(rewritten, "k int, v int, p int")
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        (writer.partitionBy(*columns) if columns else writer).save(scene.path("t"))
        checked(view, chunk=1)
    frame = scene.spark.createDataFrame([("5", 5, 5)], "k string, v int, p int")
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(scene.path("t"))
    assert "column k of source t changed from int to string" in refusal(view)


def test_an_invariant_source_gets_a_column(scene: Scene) -> None:
    """That the query does not read; a row that changed in what it reads is still refused."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2)])
    scene.source("d", "k int, name string", [(1, "one")], invariant=True)
    view = scene.view("select name, sum(v) s from t left join d on t.k = d.k group by name")
    checked(view)
    scene.sql("alter table {d} add column more int")
    scene.sql("update {d} set more = 7")
    scene.sql("insert into {t} values (1, 10)")
    checked(view)
    scene.sql("update {d} set name = 'uno'")
    with pytest.raises(SourceError, match="source d is declared invariant but changed"):
        view.refresh()


def test_other_buckets(scene: Scene) -> None:
    """The state is kept, and goes on in them."""
    scene.source("t", "k int, v double", [(k, k / 4) for k in range(20)])
    views = [
        scene.view("select k % 7 m, sum(v) s, min(v) lo from t group by k % 7", "grouped"),
        scene.view("select k, v from t where v > 1", "bag"),
    ]
    for view in views:
        checked(view)
    scene.sql("delete from {t} where k = 13")
    for view in views:
        report = view.rebucket(3)
        assert (report.verdict, report.generation) == ("rebucketed", 2)
        confirm(view)
        folders = {
            path.parent.name for path in (scene.folder / "warehouse" / "views" / view.name / "g2").rglob("*.parquet")
        }
        assert folders <= {f"__bucket={i}" for i in range(3)} and len(folders) > 1
        assert checked(view).generation == 2
    scene.sql("insert into {t} values (6, 0.25), (99, 99)")
    for view in views:
        checked(view)
    with pytest.raises(StateError, match="in 3 buckets already"):
        views[0].rebucket(3)
    with pytest.raises(StateError, match="cannot be stored in 0 buckets"):
        views[0].rebucket(0)


def test_tables_of_another_release(scene: Scene) -> None:
    """A state whose columns are others is not merged into, and a journal from later is said to be that."""
    scene.source("t", "k int, v int", [(1, 1)])
    view = scene.view(QUERY)
    checked(view)
    scene.sql("insert into {t} values (1, 2)")
    state = f"delta.`{scene.folder}/warehouse/views/v/g1/state_1`"
    scene.spark.sql(f"alter table {state} add column __s_new bigint")
    with pytest.raises(StateError, match=r"state_1 of view v has other columns than this release keeps \(__s_new\)"):
        view.refresh()
    assert view.rebuild().generation == 2
    file = next(iter(sorted((scene.folder / "warehouse" / "views" / "v" / "journal").glob("g00002*"))))
    told = json.loads(file.read_text())
    told["intent"]["later"] = True
    file.write_text(json.dumps(told))
    with pytest.raises(StateError, match="was written by a newer Deltafold than this one"):
        view.refresh()
