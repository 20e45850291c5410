"""How old a view may be, from its schedule."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path

import dagster as dg
import pytest
from dagster._utils.schedules import cron_string_iterator
from hypothesis import given, settings
from hypothesis import strategies as st

from deltafold.dagster.pipeline_assets import freshness_of
from deltafold.pipelines.declaration import cron
from deltafold.pipelines.declaration.cron import longest_pause
from tests.dagster import sales
from tests.dagster.shown import located

# at most 22 ticks a day, so that 1,500 have every pause
MINUTES, HOURS = ("0", "30", "5,50"), ("6", "8-18", "*/7", "22/1")
DAYS, WEEKDAYS = ("*", "1", "15,31", "3-5"), ("*", "1-5", "sun", "7", "tue,4")


@pytest.mark.parametrize(
    ("schedule", "pause"),
    [
        ("0 6 * * *", timedelta(days=1)),
        ("0 6 * * 1-5", timedelta(days=3)),
        ("*/5 * * * *", timedelta(minutes=5)),
        ("0 0 1 * *", timedelta(days=31)),
        ("@hourly", timedelta(hours=1)),
        ("30 8,20 * * mon-fri", timedelta(days=2, hours=12)),
        ("0 0 1 * 1", timedelta(days=7)),
        ("*/20 9-17 * jan,dec *", timedelta(days=304, hours=15, minutes=20)),
    ],
)
def test_the_longest_pause_is_found(schedule: str, pause: timedelta) -> None:
    assert longest_pause(schedule) == pause


@pytest.mark.parametrize("schedule", [*cron.CRON_NAMES, "* * * * *", "0 0 29 2 *"])
def test_every_schedule_that_may_be_declared_has_a_policy(schedule: str) -> None:
    assert isinstance(freshness_of(schedule), dg.FreshnessPolicy)


def test_a_policy_where_a_schedule_is_declared(tmp_path: Path) -> None:
    for name, schedule, policy in (("no", "", None), ("daily", 'schedule: "0 6 * * *"\n', freshness_of("0 6 * * *"))):
        graph = located(sales.declare(tmp_path / name, sales.DAILY + schedule)).resolve_asset_graph()
        assert next(iter(graph.assets_def_for_key(dg.AssetKey("sales")).specs)).freshness_policy == policy


@settings(max_examples=15)
@given(st.tuples(*(st.sampled_from(options) for options in (MINUTES, HOURS, DAYS, ("*",), WEEKDAYS))).map(" ".join))
def test_pauses_are_those_of_dagster(schedule: str) -> None:
    """Protects from a parser that reads a schedule in another way than the scheduler that follows it."""
    ticks = islice(cron_string_iterator(datetime(2024, 1, 1, tzinfo=UTC).timestamp(), schedule, "UTC"), 1500)
    assert longest_pause(schedule) == max(after - before for before, after in pairwise(ticks))
