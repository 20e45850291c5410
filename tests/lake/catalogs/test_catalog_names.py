"""Delta sources by their names in the catalog: found at each use, or refused in a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest

from deltafold.algebra.errors import SourceError
from deltafold.api import Delta, Warehouse
from deltafold.spark import catalyst
from tests.night import night
from tests.sandbox import DeltaSandbox, checked, rows

QUERY = "select k, sum(v) s from t group by k"


@pytest.fixture
def database(delta: DeltaSandbox) -> Iterator[str]:
    name = "named_" + delta.folder.name.replace("-", "_")
    delta.spark.sql(f"create database {name} location '{delta.folder / 'cata log'}'")
    yield name
    delta.spark.sql("use default")
    delta.spark.sql(f"drop database {name} cascade")


def test_a_table_is_maintained_by_its_name(delta: DeltaSandbox, database: str) -> None:
    """Protects from a name that is taken for a folder, hidden by a temporary view, or completed otherwise later.

    A managed table with a padded column (which Spark reads through a projection) and an external one, which is also a
    source by its path, which makes the two one; what upkeep does to a table of others: nothing.
    """
    sql = delta.spark.sql
    sql(f"create table {database}.t (k int, v int, c char(3)) using delta")
    sql(f"insert into {database}.t values (1, 2, 'a'), (1, 3, 'b'), (2, 5, 'c')")
    delta.insert("far away", "k int, v int", [(7, 7)])
    sql(f"create table {database}.`select` using delta location '{delta.folder / 'far away'}'")
    sql(f"use {database}")
    delta.spark.range(3).createOrReplaceTempView("t")
    delta.warehouse.source("t", Delta(table="t"))
    sql("use default")
    delta.spark.catalog.dropTempView("t")
    delta.warehouse.source("far", Delta(table=f"SPARK_CATALOG.{database}.`select`"))
    delta.warehouse.source("near", Delta(delta.path("far away")))
    query = "select k, sum(v) s from (select k, v from t union all select * from far) group by k"
    view = delta.view(query)
    checked(view)
    sql(f"update {database}.t set v = 4 where v = 3")
    sql(f"delete from {database}.`select`")
    assert checked(view).verdict == "applied"
    assert rows(view) == [(1, 6), (2, 5)]
    assert view.verify().ok
    assert view.status().lag["t"].versions == 0
    history = sql(f"describe history {database}.t").count()
    view.maintain(0)
    assert sql(f"describe history {database}.t").count() == history
    pair = delta.view("select f.k from far f join near n on f.k = n.k", "pair")
    with pytest.raises(SourceError, match="requested at two versions"):
        pair.refresh({"far": 0, "near": 1})


def test_a_name_that_leads_elsewhere(delta: DeltaSandbox, database: str) -> None:
    """Protects from a view that goes on from another table, or is called up to date, when its source was renamed."""
    sql = delta.spark.sql
    sql(f"create table {database}.t (k int, v int) using delta")
    delta.warehouse.source("t", Delta(table=f"{database}.t"))
    view = delta.view(QUERY)
    checked(view)
    sql(f"alter table {database}.t rename to {database}.u")
    gone = rf"source t is gone: there is no table spark_catalog\.{database}\.t in the catalog. Create it"
    gone += r", or correct the name\. The catalog .* is in memory"
    assert re.match(gone, view.status().problems["t"])
    for use in (view.refresh, view.verify):
        with pytest.raises(SourceError, match=gone):
            use()
    renamed = Warehouse(delta.spark, delta.folder / "warehouse")
    renamed.source("t", Delta(table=f"{database}.u"))
    sql(f"insert into {database}.u values (9, 9)")
    assert checked(renamed.view("v", QUERY)).verdict == "applied"
    sql(f"create table {database}.t (k int, v int) using delta")
    with pytest.raises(
        SourceError, match=rf"source t at spark_catalog\.{database}\.t was replaced .* its name now refers"
    ):
        view.refresh()
    view.rebuild()
    assert rows(view) == []


@night
def test_a_table_may_be_created_after_it_is_declared(delta: DeltaSandbox, database: str) -> None:
    """Protects from errors that do not help when a name leads nowhere yet, in the schema, the query or the catalog."""
    delta.warehouse.source("t", Delta(table=f"{database}.t"))
    delta.warehouse.source("s", Delta(table="no_schema.s"))
    delta.warehouse.source("c", Delta(table="nowhere.db.c"))
    delta.source("known", "k int", [(1,)])
    view = delta.view(QUERY)
    for text, message in (
        ("select k from t", rf"there is no table spark_catalog\.{database}\.t in the catalog. Create it"),
        ("select k from s", r"there is no schema spark_catalog\.no_schema in the catalog. Create it"),
        ("select k from c", r"there is no catalog nowhere for table nowhere\.db\.c: set spark\.sql\.catalog\.nowhere"),
    ):
        with pytest.raises(SourceError, match=rf"source {text[-1]} has no data: {message}"):
            delta.view(text, "early").explain()
    other = Warehouse(delta.spark, delta.folder / "other")
    other.source("t", Delta(table=f"{database}.t"))
    with pytest.raises(SourceError, match=r"^source t has no data: there is no table"):
        other.view("v", QUERY).refresh()
    delta.spark.range(3).createOrReplaceTempView("loose")
    other.source("loose", Delta(table="loose"))
    with pytest.raises(SourceError, match=r"only a temporary view loose, which has no versions. Write its rows"):
        other.view("w", "select id from loose").refresh()
    delta.spark.catalog.dropTempView("loose")
    delta.spark.sql(f"create table {database}.t (k int, v int) using delta")
    delta.spark.sql(f"insert into {database}.t values (1, 2)")
    checked(view)
    assert catalyst.isolate_session(delta.spark).catalog.tableExists(f"{database}.t")
    delta.spark.sql(f"drop table {database}.t")
    with pytest.raises(SourceError, match="source t is gone: there is no table"):
        view.refresh()


def test_what_is_no_delta_table_is_refused(delta: DeltaSandbox, database: str) -> None:
    """Protects from names that lead to something without versions, and from a name that is given as a path."""
    sql = delta.spark.sql
    sql(f"create table {database}.p (k int, v int) using parquet")
    sql(f"create table {database}.d (k int, v int) using delta")
    sql(f"create view {database}.v as select * from {database}.d")
    known = {
        "p": r"not a Delta table \(its format is parquet\). Declare one",
        "v": "it is a view of the catalog, which has",
    }
    shown = Warehouse(delta.spark, delta.folder / "published")
    shown.source("d", Delta(table=f"{database}.d"))
    shown.view("best", "select k from d", publish_as=f"{database}.best").refresh()
    known["best"] = "it shows the answer of the view best. Declare the view itself as the source"
    for name, message in known.items():
        warehouse = Warehouse(delta.spark, delta.folder / name)
        warehouse.source("s", Delta(table=f"{database}.{name}"))
        with pytest.raises(SourceError, match=rf"spark_catalog\.{database}\.{name}: {message}"):
            warehouse.view("v", "select k from s").refresh()
    given: list[Any] = [Delta(f"{database}.d"), f"{database}.d"]
    for wrong in given:
        with pytest.raises(SourceError, match=rf"source d: .* Write Delta\(table='{database}\.d'\)"):
            delta.warehouse.source("d", wrong)
    delta.warehouse.source("d", Delta(f"{delta.folder}/{database}.d"))  # as a relative path in a pipeline.yaml is read
    delta.warehouse.source("later", Delta(f"{database}.later"))
    with pytest.raises(SourceError, match=rf"and {database}\.d is a table of the catalog, not a path"):
        delta.view("select k from d").refresh()
    sql(f"create table {database}.later (k int, v int) using delta")
    with pytest.raises(SourceError, match=rf"source later has no data: .* Write Delta\(table='{database}\.later'\)"):
        delta.view("select k from later").refresh()
    with pytest.raises(
        SourceError, match=r"source x: int is not a declaration. Write Delta\(path\), Delta\(table=name\)"
    ):
        delta.warehouse.source("x", cast(Any, 5))
