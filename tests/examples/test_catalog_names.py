"""Delta sources by their names in the catalog: found at each refresh, or refused in a sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from incremental.api import Delta, DeltafoldError, Warehouse
from tests.examples.scene import Scene, checked, rows

QUERY = "select k, sum(v) s from t group by k"


@pytest.fixture
def database(scene: Scene) -> Iterator[str]:
    name = "named_" + scene.folder.name.replace("-", "_")
    scene.spark.sql(f"create database {name} location '{scene.folder / 'catalog'}'")
    yield name
    scene.spark.sql(f"drop database {name} cascade")


def test_a_table_is_maintained_by_its_name(scene: Scene, database: str) -> None:
    """Protects from a name that is taken for a folder; a managed and an external table, one of them replaced."""
    scene.spark.sql(f"create table {database}.t (k int, v int) using delta")
    scene.spark.sql(f"insert into {database}.t values (1, 2), (1, 3), (2, 5)")
    scene.insert("far away", "k int, v int", [(7, 7)])
    scene.spark.sql(f"create table {database}.far using delta location '{scene.folder / 'far away'}'")
    scene.warehouse.source("t", Delta(table=f"{database}.t"))
    scene.warehouse.source("far", Delta(table=f"spark_catalog.{database}.`far`"))
    view = scene.view("select k, sum(v) s from (select * from t union all select * from far) group by k")
    checked(view)
    scene.spark.sql(f"update {database}.t set v = 4 where v = 3")
    scene.spark.sql(f"delete from {database}.far")
    assert checked(view).verdict == "applied"
    assert rows(view) == [(1, 6), (2, 5)]
    assert view.verify().ok and view.status().lag["t"].versions == 0
    scene.spark.sql(f"drop table {database}.t")
    with pytest.raises(DeltafoldError, match=r"its table is gone|is not in the catalog"):
        view.refresh()
    scene.spark.sql(f"create table {database}.t (k int, v int) using delta")
    with pytest.raises(DeltafoldError, match=rf"source t at {database}\.t is not the table of the last epoch"):
        view.refresh()


def test_what_is_no_delta_table_is_refused(scene: Scene, database: str) -> None:
    """Protects from names that lead to something without versions, and from a name that is given as a path."""
    scene.spark.sql(f"create table {database}.p (k int, v int) using parquet")
    scene.spark.sql(f"create table {database}.d (k int, v int) using delta")
    scene.spark.sql(f"create view {database}.v as select * from {database}.d")
    known = {"p": "is not a Delta table", "v": "is a view of the catalog", "none": "not in the catalog|land their data"}
    for name, message in known.items():
        warehouse = Warehouse(scene.spark, scene.folder / name)
        warehouse.source("s", Delta(table=f"{database}.{name}"))
        with pytest.raises(DeltafoldError, match=message):
            warehouse.view("v", "select k from s").refresh()
    with pytest.raises(DeltafoldError, match=rf"write Delta\(table='{database}\.d'\)"):
        scene.warehouse.source("d", Delta(f"{database}.d"))
    for path, table in ((None, None), ("x", "y"), (None, " ")):
        with pytest.raises(DeltafoldError, match="either a path or a table"):
            Delta(path, table=table)
