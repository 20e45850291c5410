"""A source written by CREATE OR REPLACE TABLE has another id than before; its log, and so its changes, go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from deltafold.algebra.errors import SourceError
from deltafold.api import Delta
from tests.night import every, night
from tests.refresh.test_chunks import fail_in_second
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, rows

QUERY = "select k, count(*) n, sum(v) s, max(v) hi from t group by k"
MAPPED = "tblproperties ('delta.columnMapping.mode' = 'name')"


def write(delta: DeltaSandbox, values: str, options: str = "", columns: str = "k, v") -> None:
    """Write the source t as dbt's table models do."""
    delta.sql(
        f"create or replace table {{t}} using delta {options} as select * from values {values} as source ({columns})"
    )


def without_commit_ids(delta: DeltaSandbox, view: str) -> None:
    """Let the journal have no commit ids, as where the writer of a source does not give its commits any."""
    for file in (delta.folder / "warehouse" / "views" / view / "journal").glob("g*-e*.json"):
        content = json.loads(file.read_text())
        for pin in content["intent"]["sources"].values():
            pin["commit"] = ""
        file.write_text(json.dumps(content))


def test_a_table_that_is_replaced_each_night(delta: DeltaSandbox, long: bool) -> None:
    """Also with other columns, partitions and physical names, and where the journal has no ids of commits."""
    write(delta, "(1, 1), (2, 2)")
    delta.declare("t")
    view = delta.view(QUERY)
    checked(view)
    nights = (
        ("(1, 1), (2, 4)", MAPPED, "k, v"),
        ("(1, 2, 'x'), (3, 5, 'y')", "partitioned by (v)", "k, v, more"),
        ("(1, 9), (3, 4)", "", "k, v"),
    )
    for values, options, columns in nights if long else nights[:2]:
        without_commit_ids(delta, "v")
        write(delta, values, options, columns)
        assert checked(view).verdict == "applied", (values, options)


@night
def test_a_replaced_table_that_is_restored(delta: DeltaSandbox) -> None:
    write(delta, "(1, 1), (3, 4)")
    delta.declare("t")
    view = delta.view(QUERY)
    checked(view)
    write(delta, "(1, 9), (3, 4)")
    write(delta, "(1, 2, 'x'), (3, 5, 'y')", "partitioned by (v)", "k, v, more")
    checked(view)
    write(delta, "(8, 8)", MAPPED)
    write(delta, "(1, 2), (7, 7)", MAPPED)
    delta.sql("restore table {t} to version as of 1")
    delta.sql("delete from {t} where k = 1")
    checked(view)
    assert rows(view) == [(3, 1, 4, 4)]
    checked(view, versions={"t": 3})
    assert rows(view) == [(8, 1, 8, 8)]


@pytest.mark.parametrize("ids", every(2, ["no commit ids", "commit ids"]))
def test_a_table_that_was_made_again_is_another(delta: DeltaSandbox, ids: str) -> None:
    """Though it has as many versions, and was replaced as often."""
    write(delta, "(1, 1)")
    write(delta, "(1, 2)")
    delta.declare("t")
    view = delta.view("select k, v from t")
    view.refresh()
    if ids == "no commit ids":
        without_commit_ids(delta, "v")
    delta.remove("t")
    for value in (1, 2, 3):
        write(delta, f"(1, {value})")
    for ask in (view.refresh, view.verify):
        with pytest.raises(SourceError, match=r"source t at .* was dropped and created again, or .*. Rebuild the view"):
            ask()


@night
def test_a_copy_that_was_replaced_on_its_own(delta: DeltaSandbox) -> None:
    """It shares the log up to the copy: what was pinned after that it does not have."""
    write(delta, "(1, 1)")
    table, copy = Path(delta.path("t")), delta.folder / "copy"
    shutil.copytree(table, copy)
    write(delta, "(1, 2)")
    delta.declare("t")
    view = delta.view("select k, v from t")
    view.refresh()
    delta.remove("t")
    shutil.copytree(copy, table)
    for value in (3, 4):
        write(delta, f"(1, {value})")
    with pytest.raises(SourceError, match="its history was replaced"):
        view.refresh()


@night
def test_views_above_a_table_of_the_catalog(delta: DeltaSandbox) -> None:
    """By its name, whose location stays; the views above see an ordinary change."""
    name = f"replaced_{delta.folder.name.replace('-', '_')}"
    statement = f"create or replace table {name} using delta location '{delta.path('t')}' as select * from values "
    delta.spark.sql(statement + "(1, 1), (2, 2) as source (k, v)")
    try:
        delta.warehouse.source("t", Delta(table=name))
        delta.warehouse.source("below", delta.view(QUERY, "below"))
        above = delta.view("select n, sum(s) s from below group by n", "above")
        checked(above)
        delta.spark.sql(statement + "(1, 1), (1, 2) as source (k, v)")
        assert (checked(above).verdict, rows(above)) == ("applied", [(2, 3)])
    finally:
        delta.spark.sql(f"drop table {name}")


@night
def test_a_change_in_chunks_goes_on_over_a_replaced_table(delta: DeltaSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was interrupted; then the table was replaced, and the versions that it is to reach are still in its log."""
    write(delta, "(1, 1), (2, 2)")
    delta.declare("t")
    view = delta.view(QUERY)
    checked(view)
    for value in (3, 4, 5):
        delta.sql(f"insert into {{t}} values ({value}, {value})")
    write(delta, "(1, 1), (9, 9)")
    with monkeypatch.context() as patch:
        fail_in_second(patch)
        with pytest.raises(ZeroDivisionError):
            view.refresh(chunk=1)
    write(delta, "(1, 7), (9, 9)", MAPPED)
    assert checked(view).verdict == "applied"
    assert rows(view) == [(1, 1, 7, 7), (9, 1, 9, 9)]


def test_the_status_of_a_table_that_was_created_again(sandbox: MemorySandbox) -> None:
    """Protects from a view that is called current, as the other table happens to have the same version."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    view = sandbox.view(QUERY)
    checked(view)
    assert view.current
    sandbox.remove("t")
    sandbox.insert("t", "k int, v int", [(9, 9)])
    assert "was replaced since the last epoch" in view.status().problems["t"]
    assert not view.current
    assert not view.status().lag
