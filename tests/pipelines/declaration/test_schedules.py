"""Declared schedules and partitions, and the error for each mistake in them."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from deltafold.pipelines.declaration.declaration import Partitions
from tests.pipelines.declaration.test_declaration import complaint, read
from tests.pipelines.declared import MINIMAL


@pytest.mark.parametrize("text", ["0 6 * * *", "*/15 0-6,12 1 jan,Feb *", "@daily", "0 0 * * 7", "5/10 * * * *"])
def test_schedules(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, MINIMAL + f'schedule: "{text}"\n').schedule == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("61 * * * *", "`61` is not a minute of a cron schedule. Choose 0 to 59"),
        ("* * 0 * *", "`0` is not a day of the month"),
        ("* * * foo *", "`foo` is not a month"),
        ("* 6-2 * * *", "`6-2` runs backwards"),
        ("*/0 * * * *", "`*/0` has an invalid step"),
        ("? * * * *", "`?` is not a minute"),
        ("@often", "`@often` is not a schedule"),
    ],
)
def test_wrong_schedules(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(tmp_path, MINIMAL + f'schedule: "{text}"\n')


DAILY = Partitions(kind="daily", start=datetime.date(2013, 1, 1), end=datetime.date(2013, 12, 31))


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "a\\b", "a\nb", "\x00"])
def test_a_partition_is_one_folders_name(value: str) -> None:
    for partitions in (Partitions(kind="dynamic"), DAILY):
        with pytest.raises(ValueError, match="it names no single folder"):
            partitions.check(value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("20130101", "is not a day"),
        ("x' OR '1'='1", "is not a day"),
        ("2012-12-31", "is outside"),
        ("2014-01-01", "to"),
    ],
)
def test_a_daily_partition_is_a_day_between_start_and_end(value: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DAILY.check(value)


def test_partitions_that_are_fine() -> None:
    assert DAILY.check("2013-12-31") == "2013-12-31"
    assert Partitions(kind="dynamic").check("Côte d'Ivoire") == "Côte d'Ivoire"
