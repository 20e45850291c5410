"""How old a view may be, from its schedule."""

from datetime import timedelta

import dagster as dg
import pytest

from deltafold.dagster.automation.freshness import freshness_of, longest_pause
from deltafold.pipelines.declaration import cron


@pytest.mark.parametrize(
    ("schedule", "pause"),
    [
        ("0 6 * * *", timedelta(days=1)),
        ("0 6 * * 1-5", timedelta(days=3)),
        ("*/5 * * * *", timedelta(minutes=5)),
        ("0 0 1 * *", timedelta(days=31)),
        ("@hourly", timedelta(hours=1)),
    ],
)
def test_the_longest_pause_is_found(schedule: str, pause: timedelta) -> None:
    assert longest_pause(schedule) == pause


@pytest.mark.parametrize("schedule", [*cron.CRON_NAMES, "* * * * *", "0 0 29 2 *"])
def test_every_schedule_that_may_be_declared_has_a_policy(schedule: str) -> None:
    assert isinstance(freshness_of(schedule), dg.FreshnessPolicy)


def test_no_schedule_no_policy() -> None:
    assert freshness_of(None) is None
