"""A partition is its value, however its folder spells it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from tests.crash.points import Killed, watched
from tests.landing.test_landing import Drop
from tests.landing.test_quarantine import Dropped, Rows
from tests.night import every, night

pytestmark = pytest.mark.usefixtures("in_memory")

OLD, NEW = "2024-5-1", "2024-05-01"


def rename(drop: Drop, old: str, new: str) -> None:
    (drop.folder / f"day={old}").rename(drop.folder / f"day={new}")


def ids(drop: Drop) -> list[str]:
    """The numbers of the landed rows."""
    return sorted(str(row[0]) for row in drop.rows().elements())


@pytest.fixture
def drop(spark: SparkSession, tmp_path: Path) -> Drop:
    """A day that was landed beside another, and whose folder got another name since."""
    made = Drop(spark, tmp_path, type_="date")
    made.put(OLD, 1)
    made.put("2024-05-02", 2)
    made.warehouse.land("orders")
    rename(made, OLD, NEW)
    return made


@pytest.mark.parametrize("named", every(3, [[OLD], [NEW], [OLD, NEW], None, ["2024-05-02", NEW]]))
def test_a_respelt_partition_stays(drop: Drop, named: list[str] | None) -> None:
    """Protects from rows that go with the old name of their folder, at once or at the next landing."""
    done = drop.warehouse.land("orders", named)
    assert (done.landed, done.removed) == ((NEW,), (OLD,))
    after = drop.warehouse.land("orders")
    assert (after.landed, after.removed, after.unchanged) == ((), (), (NEW, "2024-05-02"))
    assert ids(drop) == ["1", "2"]


SPELLINGS = {
    "timestamp": ("2013-01-01 10%3A00", "2013-01-01 10%3A00%3A00"),
    "int": ("5", "05"),
    "boolean": ("TRUE", "true"),
    "decimal(4,1)": ("1.50", "1.5"),
    "double": ("-0", "0.0"),
}


@pytest.mark.parametrize("type_", every(3, SPELLINGS))
def test_respelt_values_of_other_types(spark: SparkSession, tmp_path: Path, type_: str) -> None:
    """Protects from the same where other values have two spellings; NULL has one."""
    old, new = SPELLINGS[type_]
    drop = Drop(spark, tmp_path, type_=type_)
    drop.put(old, 1)
    drop.put("__HIVE_DEFAULT_PARTITION__", 2)
    drop.warehouse.land("orders")
    rename(drop, old, new)
    drop.warehouse.land("orders", [new.replace("%3A", ":")])
    assert drop.warehouse.land("orders").removed == ()
    assert ids(drop) == ["1", "2"]


def test_one_partition_has_one_folder(drop: Drop) -> None:
    """Protects from two folders that replace each other's rows, and from what is left once one is gone."""
    drop.put(OLD, 3)
    for named in ([NEW], None):
        with pytest.raises(SourceError, match=r"are the same partition. Keep one"):
            drop.warehouse.land("orders", named)
    assert ids(drop) == ["1", "2"]
    (drop.folder / f"day={NEW}" / "a.csv").unlink()
    assert drop.warehouse.land("orders", [OLD]).landed == (OLD,)
    assert ids(drop) == ["2", "3"]


def test_a_manifest_that_knows_both_spellings(drop: Drop) -> None:
    """Protects from rows lost to what earlier releases remembered."""
    drop.warehouse.land("orders")
    manifest = drop.root / "landed" / "orders" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["partitions"][OLD] = content["partitions"][NEW]
    manifest.write_text(json.dumps(content))
    drop.warehouse.land("orders")
    assert ids(drop) == ["1", "2"]


@night
def test_a_respelt_partition_whose_landing_is_killed(drop: Drop) -> None:
    """Protects from a crash between the two names."""
    names = [OLD, NEW]
    for number in range(6):
        old, new = names[number % 2 :] + names[: number % 2]
        drop.put(new, number)
        with watched(number) as run, pytest.raises(Killed):
            drop.warehouse.land("orders", [new])
        assert len(run.passed) == number + 1
        drop.warehouse.land("orders", [new] if number < 3 else None)
        drop.warehouse.land("orders")
        assert ids(drop) == sorted([str(number), "2"])
        rename(drop, new, old)


@night
def test_a_respelt_partition_takes_its_quarantine_with_it(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from rows that stay in quarantine under a name that nothing has any more."""
    drop = Dropped(spark, tmp_path)
    drop.put("day=1/a.csv", "1,1", "2,x")
    drop.warehouse.land("orders")
    (tmp_path / "drop" / "day=1").rename(tmp_path / "drop" / "day=01")
    assert drop.warehouse.land("orders", ["01"]).quarantined == {"01": 1}
    assert drop.quarantined() == Rows([("01", "a.csv", 3, "2,x")])
    assert drop.landed() == drop.fitting()
