"""How a declaration's partitions become Dagster's."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pytest

from deltafold.dagster import partitions
from deltafold.pipelines import catalogue
from deltafold.pipelines.declaration.parsing import DeclarationError
from tests.dagster import sales
from tests.pipelines.declared import MINIMAL, write

NOON = datetime(2013, 1, 15, 12, tzinfo=UTC)


def test_daily_partitions_include_the_declared_end(tmp_path: Path) -> None:
    cut = partitions.partitions_of(sales.declare(tmp_path))
    assert isinstance(cut, dg.DailyPartitionsDefinition)
    assert cut.get_partition_keys() == [f"2013-01-{day:02}" for day in range(1, 32)]


def test_daily_partitions_without_an_end_include_today(tmp_path: Path) -> None:
    cut = partitions.partitions_of(sales.declare(tmp_path, "partitions: {kind: daily, start: 2013-01-01}\n"))
    assert cut is not None
    assert cut.get_partition_keys(NOON)[-1] == "2013-01-15"


@pytest.mark.parametrize("more", ["", sales.DYNAMIC])
def test_other_partitions_are_dynamic_and_named_after_the_pipeline(tmp_path: Path, more: str) -> None:
    assert partitions.partitions_of(sales.declare(tmp_path, more)) == dg.DynamicPartitionsDefinition(name="sales")


def test_no_partition_column_no_partitions(tmp_path: Path) -> None:
    write(tmp_path, "shop", MINIMAL)
    assert partitions.partitions_of(catalogue.load("shop", tmp_path)) is None


def test_yesterday_is_the_day_before_in_utc() -> None:
    assert partitions.yesterday(NOON) == "2013-01-14"
    assert partitions.yesterday(datetime(2013, 1, 15, 1, tzinfo=timezone(timedelta(hours=2)))) == "2013-01-13"


@pytest.mark.parametrize(
    ("key", "possible"),
    [("2013-01-15", True), ("2013-01-16", False), ("2012-12-31", False), ("2013-02-01", False), ("someday", False)],
)
def test_a_day_can_be_a_partition_from_its_start_on(tmp_path: Path, key: str, possible: bool) -> None:
    assert partitions.can_be(sales.declare(tmp_path), key, NOON) is possible


def test_dynamic_partitions_can_be_anything_that_is_a_folder(tmp_path: Path) -> None:
    pipeline = sales.declare(tmp_path, sales.DYNAMIC)
    assert partitions.can_be(pipeline, "someday", NOON)
    with pytest.raises(DeclarationError, match="it names no single folder"):  # and is not passed over
        partitions.can_be(pipeline, "a/b", NOON)


def test_a_window_lands_the_folders_of_its_days(tmp_path: Path) -> None:
    """Protects from a week of which one day is landed, and from days that no partition lands."""
    daily, dynamic = sales.declare(tmp_path), sales.declare(tmp_path / "other", sales.DYNAMIC)
    weeks = dg.WeeklyPartitionsDefinition("2012-12-30", timezone="Europe/Oslo")
    months: dg.PartitionsDefinition = dg.MonthlyPartitionsDefinition("2013-01", fmt="%Y-%m")
    compact: dg.PartitionsDefinition = dg.DailyPartitionsDefinition("20130101", fmt="%Y%m%d")

    def days(first: int, last: int) -> tuple[str, ...]:
        return tuple(f"2013-01-{day:02}" for day in range(first, last + 1))

    later = datetime(2013, 6, 1, tzinfo=UTC)
    assert partitions.folders_of(daily, weeks, "2012-12-30", NOON) == days(1, 5)
    assert partitions.folders_of(daily, weeks, "2013-01-13", NOON) == days(13, 15)
    assert partitions.folders_of(daily, months, "2013-01", later) == days(1, 31)
    assert partitions.folders_of(daily, compact, "20130107", NOON) == ("2013-01-07",)
    assert not partitions.folders_of(daily, months, "2013-02", later)
    assert partitions.folders_of(dynamic, months, "2013-01", later)[:4] == ("2013-01", *days(1, 1), *days(2, 3))
    assert partitions.folders_of(dynamic, compact, "20130107", NOON) == ("20130107", "2013-01-07")
    over = partitions.partitions_by_folder(daily, weeks, ["2013-01-01", "2013-01-08", "2013-01-14", "2013-03-01"], NOON)
    assert over == {"2013-01-01": "2012-12-30", "2013-01-08": "2013-01-06"}


def test_a_range_holds_all_its_keys() -> None:
    tags = partitions.range_tags(["c", "a"], ["a", "b", "c", "d"])
    assert tags == {partitions.RANGE_START: "a", partitions.RANGE_END: "c"}
