"""Views in a warehouse at a URI: their life, and kills at every write of a record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.api import BusyError, Delta, Files, SourceError, StateError, StorageError, Stream, Warehouse
from deltafold.lake.records import records_at
from deltafold.lake.remote import objects
from deltafold.lake.remote.lease import Lease
from deltafold.lake.remote.remote_path import HELD
from deltafold.landing.streams.position import Reading
from deltafold.store.journal import Journal
from tests.crash.points import Killed
from tests.night import every, night

QUERY = "select shop, sum(amount) total, count(*) n from sales group by shop"


@pytest.fixture
def sales(spark: SparkSession, mount: str) -> str:
    """Return the URI of a table of 40 rows."""
    address = f"{mount}/sales"
    spark.range(40).selectExpr("id", "id % 4 shop", "id amount").write.format("delta").save(address)
    return address


def change(spark: SparkSession, sales: str) -> None:
    spark.sql(f"delete from delta.`{sales}` where id % 7 = 1")
    spark.sql(f"insert into delta.`{sales}` select id + (select max(id) from delta.`{sales}`) + 1, 2, 5 from range(3)")


def open_warehouse(spark: SparkSession, mount: str, sales: str) -> Warehouse:
    warehouse = Warehouse(spark, f"{mount}/house/")
    warehouse.source("sales", Delta(sales))
    return warehouse


def test_the_life_of_a_view(spark: SparkSession, mount: str, sales: str) -> None:
    """Protects from an operation that looks for a folder on this machine."""
    warehouse = open_warehouse(spark, mount, sales)
    view = warehouse.view("totals", QUERY)
    with pytest.raises(StateError, match="no finished epoch yet"):
        view.answer()
    assert view.refresh().change_rows == 40
    change(spark, sales)
    assert view.refresh().verdict == "applied"
    assert view.verify().ok
    assert view.refresh().verdict == "nothing to do"
    assert view.address.path == f"{mount}/house/views/totals/answer"
    warehouse.source("below", view)
    above = warehouse.view("above", "select n, count(*) c from below group by n")
    change(spark, sales)
    assert above.refresh().epoch == 1
    assert above.verify().ok
    assert above.status().current
    assert [report.epoch for report in view.history()] == [1, 2, 3]
    with pytest.raises(StateError, match="above reads it"):
        view.drop()
    assert view.rollback(2).generation == 2
    assert view.rebuild().generation == 3
    assert view.maintain(0).generations == (2,), "a view above still reads the first"
    above.refresh()
    assert above.verify().ok
    above.drop()
    view.drop()
    assert not records_at(warehouse.root / "views" / "totals").exists()
    again = open_warehouse(spark, mount, sales).view("totals", "select shop from sales")
    again.refresh()
    assert again.verify().ok


def test_files_are_landed(spark: SparkSession, mount: str, tmp_path: Path) -> None:
    """Protects from a record of landings that is written here and looked for there."""
    folder = tmp_path / "drop" / "day=1"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("a,b\n1,2\n3,4\n")
    warehouse = Warehouse(spark, f"{mount}/house")
    warehouse.source("facts", Files(str(tmp_path / "drop"), "csv", "a int, b int, day int", partition_by="day"))
    assert warehouse.land("facts").landed == ("1",)
    assert warehouse.land("facts").unchanged == ("1",)
    view = warehouse.view("sums", "select day, sum(b) s from facts group by day")
    view.refresh()
    (folder / "a.csv").write_text("a,b\n1,2\n3,5\n")
    assert warehouse.land("facts").landed == ("1",)
    view.refresh()
    assert [tuple(row) for row in view.answer().collect()] == [(1, 7)]
    assert warehouse.quarantine("facts").isEmpty()


@pytest.mark.parametrize("dies", every(3, ["seal", None, "clear"]))
def test_streams_are_landed(
    spark: SparkSession, mount: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str | None
) -> None:
    """Each record once, also where a landing died after it had taken what arrived, or had landed it."""
    folder, warehouse = tmp_path / "in", Warehouse(spark, mount)
    folder.mkdir()
    warehouse.source("clicks", Stream("json", "a int", path=str(folder), malformed="quarantine"))
    (folder / "1.json").write_text('{"a": 1}\n{"a": 2}\n')
    assert warehouse.land("clicks").rows == 2
    (folder / "2.json").write_text('{"a": 3}\n{"a": "x"}\n')
    if dies:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Reading, dies, interrupt_after(getattr(Reading, dies)))
            warehouse.land("clicks")
    warehouse.land("clicks")
    assert warehouse.land("clicks").rows == 0
    landed = warehouse.tables()["clicks"]
    assert sorted(row.a for row in spark.read.format("delta").load(landed.path).collect()) == [1, 2, 3]
    assert warehouse.quarantine("clicks").count() == 1
    assert warehouse.replay("clicks").rows == 3


def interrupt_after(act: Callable[..., None]) -> Callable[..., None]:
    def act_and_die(*arguments: object, **options: object) -> None:
        act(*arguments, **options)
        raise KeyboardInterrupt

    return act_and_die


@night
@pytest.mark.parametrize("dies", every(3, ["finish", None, "record"]))
def test_a_branch_is_there_with_its_journal(
    spark: SparkSession, mount: str, sales: str, monkeypatch: pytest.MonkeyPatch, dies: str | None
) -> None:
    """Protects from half a branch, which a process left that died before its journal was written."""
    view = open_warehouse(spark, mount, sales).view("totals", QUERY)
    view.refresh()
    if dies:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Journal, dies, interrupt)
            view.branch("mine")
    mine = view.branch("mine")
    change(spark, sales)
    for each in (mine, view):
        each.refresh()
        assert each.verify().ok
    with pytest.raises(StateError, match="it exists already"):
        view.branch("mine")
    with pytest.raises(StateError, match="mine"):
        view.drop()
    mine.drop()
    view.drop()


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_bad_addresses_get_a_sentence(spark: SparkSession) -> None:
    """Protects from a password in a file, and from a page of Java for a file system that Spark lacks."""
    with pytest.raises(SourceError, match="contains a password"):
        Warehouse(spark, "s3a://me:hunter2@lake/wh")
    with pytest.raises(StorageError, match=r"nosuchfs://lake/wh.*jars"):
        Warehouse(spark, "nosuchfs://lake/wh")


@night
def test_a_drop_leaves_what_comes_after_it(
    spark: SparkSession, mount: str, sales: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from removing, without the lease, the tables of a view that another process made in the meantime."""
    view = open_warehouse(spark, mount, sales).view("totals", QUERY)
    view.refresh()
    release = Lease.release

    def make_another(lease: Lease) -> None:
        release(lease)
        monkeypatch.undo()
        open_warehouse(spark, mount, sales).view("totals", QUERY).refresh()

    monkeypatch.setattr(Lease, "release", make_another)
    view.drop()
    assert open_warehouse(spark, mount, sales).view("totals", QUERY).verify().ok


Act = Callable[..., Any]


def count_acts(monkeypatch: pytest.MonkeyPatch, stop: int, after: bool) -> list[str]:
    """Kill at an act on the store, before or after it is done; returns the list of acts so far."""
    acts = list[str]()

    def watch(act: Act) -> Act:
        def counted(address: str, *rest: str) -> Any:
            acts.append(f"{act.__name__} {address}")
            if len(acts) == stop and not after:
                raise Killed
            done = act(address, *rest)
            if len(acts) == stop:
                raise Killed
            return done

        return counted

    for act in (objects.put_if_absent, objects.delete):
        monkeypatch.setattr(objects, act.__name__, watch(act))
    return acts


@night
@pytest.mark.parametrize("side", every(2, ["before", "after"]))
def test_a_kill_at_any_act_is_survived(
    spark: SparkSession, mount: str, sales: str, side: str, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from a record that is missing, half, or twice after a crash. Its lease is given back, as if it ended."""
    warehouse = open_warehouse(spark, mount, sales)
    warehouse.view("totals", QUERY).refresh()
    after, stop, killed = side == "after", 0 if side == "after" else -2, True
    while killed:
        stop, killed = stop + (1 if long else 5), False
        change(spark, sales)
        with monkeypatch.context() as patched:
            count_acts(patched, stop, after)
            try:
                warehouse.view("totals", QUERY).refresh()
            except Killed:
                killed = True
        HELD.clear()
        try:
            warehouse.view("totals", QUERY).refresh()
        except BusyError:  # it was killed while it gave the lease back
            objects.delete(f"{mount}/house/views/.totals.lease")
            warehouse.view("totals", QUERY).refresh()
        assert warehouse.view("totals", QUERY).verify().ok, stop
    assert stop > 5
