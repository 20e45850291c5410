"""The addresses that never change: a pointer file beside the generations, and a SQL view in Spark's catalog."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.errors import CatalogError, QueryError, StateError
from deltafold.api import Delta, View, Warehouse
from deltafold.lake.sql_view import SqlView
from deltafold.spark import catalyst
from deltafold.store import answer_pointer
from tests.night import night
from tests.sandbox import DeltaSandbox, confirm

HOSTILE = "select k as `k``; -- ' é`, v * 2 as `v 2` from t where v > 0"  # its table has copy numbers
JDBC = {
    "": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    ".url": "jdbc:derby:memory:viewless;create=true",
    ".driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
}  # a catalog of tables alone


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    name = f"d_{abs(hash(tmp_path))}"
    spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path / 'database'}'")
    yield name
    spark.sql(f"DROP DATABASE {name} CASCADE")


def pointer(view: View) -> dict[str, object]:
    return json.loads((Path(str(view.folder)) / "current.json").read_text())


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


def check(view: View) -> None:
    """All addresses lead to the answer, with its columns and no others."""
    confirm(view)
    expected, told = view.answer(), pointer(view)
    reader = view.warehouse.spark.read.format("delta").option("versionAsOf", str(told["version"]))
    by_file = reader.load(str(told["path"])).select(*(f"`{c.name.replace('`', '``')}`" for c in view.address.columns))
    assert view.publish_as is not None
    for found in (by_file, view.warehouse.spark.table(view.publish_as)):
        assert (found.schema.simpleString(), rows(found)) == (expected.schema.simpleString(), rows(expected))
    assert Path(view.path).resolve() == Path(str(told["path"]))
    assert Path(str(told["path"])) == (view.warehouse.root / "views" / view.name / str(told["table"])).resolve()
    assert [(c["name"], c["type"]) for c in told["columns"]] == [(c.name, c.type) for c in view.columns]  # type: ignore[attr-defined]
    assert told | {"columns": ()} == json.loads(view.address.to_json()) | {"columns": ()}


def pointed(view: View) -> tuple[str, str]:
    """The generation and the epoch since which a SQL view shows its table."""
    assert view.publish_as is not None
    told = SqlView(view.warehouse.spark, view.publish_as).entry()
    assert told is not None and told.properties["deltafold.view"] == view.name
    return told.properties["deltafold.generation"], told.properties["deltafold.epoch"]


def test_both_addresses_follow_the_answer_through_its_life(delta: DeltaSandbox, database: str) -> None:
    """Protects from readers that are left at a superseded table, or that see reserved columns."""
    delta.source("t", "k int, v int", [(1, 1), (1, 1), (2, 3)])
    view = delta.view(HOSTILE, publish_as=f"{database}.Answer")
    with pytest.raises(StateError, match=r"view v: no finished epoch yet. Refresh it first"):
        _ = view.address
    view.refresh()
    delta.sql("insert into {t} values (2, 5), (3, 4)")
    with mock.patch.object(SqlView, "write", side_effect=AssertionError("it shows later epochs by itself")):
        view.refresh()
    assert (pointed(view), view.address.epoch) == (("1", "1"), 2)
    view.rebuild()
    check(view)
    assert pointed(view) == ("2", "1")
    view.rollback(1, 1)
    assert pointed(view) == ("3", "1")
    told = {row.col_name: row.data_type for row in delta.spark.sql(f"DESCRIBE EXTENDED {database}.answer").collect()}
    place = f"{delta.folder}/warehouse/views/v; selects from its table since epoch 1 of generation 3"
    assert told["Comment"] == f"Answer of the Deltafold view v in {place}"
    assert view.maintain(0).generations == (1, 2)
    assert delta.spark.table(view.publish_as or "").count() == 3
    delta.view(HOSTILE).drop()  # a caller need not know the name
    assert not delta.spark.catalog.tableExists(f"{database}.Answer")


def test_a_sql_view_that_is_missing_is_made_again(delta: DeltaSandbox, database: str) -> None:
    """Protects from a catalog in memory, which has no SQL view in a new process; and from a costly look."""
    delta.source("t", "k int, v int", [(1, 1)])
    view, name = delta.view(HOSTILE, publish_as=f"{database}.v"), f"{database}.v"
    view.refresh()
    delta.spark.sql(f"DROP VIEW {name}")
    assert view.refresh().verdict == "nothing to do"
    assert delta.spark.table(name).count() == 1
    delta.spark.sql(f"ALTER VIEW {name} AS SELECT 1 AS other LIMIT 0")
    assert view.refresh().verdict == "nothing to do"
    assert delta.spark.table(name).count() == 1

    jobs = delta.spark.sparkContext.statusTracker().getJobIdsForGroup
    before, look = len(jobs()), SqlView.entry
    with (
        mock.patch.object(SqlView, "entry", autospec=True, side_effect=look) as looked,
        mock.patch.object(SqlView, "check_database", side_effect=AssertionError),
        mock.patch.object(answer_pointer.PointerFile, "write", side_effect=AssertionError),
    ):
        assert view.refresh().verdict == "nothing to do"
        assert looked.call_count == 1
        delta.view(HOSTILE, "w")  # without publish_as nobody asks the catalog
    assert len(jobs()) == before

    renamed = delta.view(HOSTILE, publish_as=f"spark_catalog.{database}.V")  # Spark's longer name of the same
    assert renamed.refresh().verdict == "nothing to do"
    assert delta.spark.table(name).count() == 1
    Path(str(view.warehouse.root), "views", "v", "current.json").write_text("{")
    delta.view(HOSTILE, publish_as=f"{database}.other").refresh()
    assert delta.spark.table(f"{database}.other").count() == 1
    delta.view(HOSTILE).refresh()
    assert not delta.spark.catalog.tableExists(f"{database}.other")
    assert pointer(view)["publish_as"] is None


def test_a_name_that_is_taken_is_refused_before_anything_is_written(delta: DeltaSandbox, database: str) -> None:
    """Protects from replacing what somebody else made, and from half a refresh."""
    delta.source("t", "k int, v int", [(1, 1)])
    delta.spark.sql(f"CREATE TABLE {database}.tab (a INT) USING delta")
    delta.spark.sql(f"CREATE VIEW {database}.foreign AS SELECT 1 AS one")
    delta.view(HOSTILE, "first", publish_as=f"{database}.ours").refresh()
    ours = f"Answer of the Deltafold view first in {delta.folder}/warehouse/views/first"
    other = Warehouse(delta.spark, delta.folder / "warehouse 2")
    other.source("t", Delta(delta.path("t")))
    for name, whose in (
        ("tab", "a table that Deltafold did not create"),
        ("FOREIGN", "a view that Deltafold did not create"),
        ("ours", f"{ours}; selects from its table since epoch 1 of generation 1"),
    ):
        view = other.view("v", HOSTILE, publish_as=f"{database}.{name}")
        with pytest.raises(CatalogError) as caught:
            view.refresh()
        said = str(caught.value)
        assert said.startswith("view v: ") and whose in said
        assert f"as {database}.{name}" in said and f"drop {database}.{name}" in said
        assert not (delta.folder / "warehouse 2" / "views" / "v" / "journal").exists()
    for name in (f"{database}.none.there", "nowhere.v"):
        with pytest.raises(CatalogError, match=r"view v: it cannot be published as .*Nothing was written"):
            other.view("v", HOSTILE, publish_as=name).refresh()
    view.drop()
    assert delta.spark.table(f"{database}.ours").count() == 1
    shutil.rmtree(delta.folder / "warehouse")
    delta.view(HOSTILE, "first", publish_as=f"{database}.ours").drop()
    assert not delta.spark.catalog.tableExists(f"{database}.ours")


@night
def test_a_catalog_that_refuses_leaves_the_data_safe(delta: DeltaSandbox, database: str) -> None:
    """Protects from a refresh that is lost, or begun again, since its SQL view cannot be made."""
    delta.source("t", "k int, v int", [(1, 1)])
    catalyst.jvm(delta.spark).java.lang.System.setProperty("derby.stream.error.file", str(delta.folder / "derby.log"))
    for key, value in JDBC.items():
        delta.spark.conf.set(f"spark.sql.catalog.viewless{key}", value)
    view = delta.view(HOSTILE, publish_as="viewless.SYS.v")
    for _ in range(2):
        with pytest.raises(CatalogError) as caught:
            view.refresh()
        named = "view v: ", "to epoch 1,", "viewless.SYS.v", "Catalog viewless does not support views"
        assert all(part in str(caught.value) for part in (*named, "Choose a database", "then refresh again"))
        assert (view.answer().count(), len(view.history())) == (1, 1)
    delta.spark.conf.unset("spark.sql.catalog.viewless")  # a name that is given up may be of a catalog that is gone
    mended = delta.view(HOSTILE, publish_as=f"{database}.v")
    assert mended.refresh().verdict == "nothing to do"
    check(mended)


@night
def test_a_catalog_that_cannot_replace_a_view_gets_another_one(delta: DeltaSandbox, database: str) -> None:
    """Protects from a SQL view that stays at the table before a rebuild, as Unity Catalog replaces no view."""
    delta.source("t", "k int, v int", [(1, 1)])
    view, run = delta.view(HOSTILE, publish_as=f"{database}.v"), SparkSession.sql
    view.refresh()

    def refuse_to_replace(spark: SparkSession, text: str, *args: object, **frames: object) -> DataFrame:
        if text.startswith("CREATE OR REPLACE VIEW"):
            catalyst.jvm(spark).java.util.List.of().clear()  # raises UnsupportedOperationException
        return run(spark, text, *args, **frames)  # type: ignore[arg-type]

    with mock.patch.object(SparkSession, "sql", autospec=True, side_effect=refuse_to_replace):
        view.rebuild()
    check(view)
    assert pointed(view) == ("2", "1")


def test_names_that_cannot_be_and_names_twice_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from two views that take a name from each other at every refresh."""
    warehouse = Warehouse(spark, tmp_path)
    for name in ("v", "a.b.c.d", "a.", ".b", "a b.c", "a.`b`", "", "a.b;--"):
        with pytest.raises(QueryError, match=r"view v: publish_as: .* cannot name a SQL view. Write `database.view`"):
            warehouse.view("v", HOSTILE, publish_as=name)
    one = warehouse.view("one", HOSTILE, publish_as="d.v")
    assert warehouse.view("one", HOSTILE, publish_as="d.v") == one
    with pytest.raises(QueryError, match=r"view two: view one is published as D\.v too. Choose another name for one"):
        warehouse.view("two", HOSTILE, publish_as="D.v")
    one.drop()
    warehouse.view("two", HOSTILE, publish_as="D.v")
