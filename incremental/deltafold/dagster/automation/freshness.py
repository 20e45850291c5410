"""Derive Dagster's freshness policy of a view from the pipeline's cron schedule.

A view without a schedule has none: it is refreshed when its sources change. A scheduled view is expected after every
tick: it warns when one refresh is missing and fails when two in a row are.
"""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import dagster as dg
from dagster._utils.schedules import cron_string_iterator  # Dagster has no public parser of cron texts

_FRIDAY = datetime(2024, 1, 5, tzinfo=UTC).timestamp()  # a day shortly before a weekend
_TICKS = 600  # a weekend of half-hourly ticks, a month of hourly ones, more than a year of daily ones


def freshness_of(schedule: str | None) -> dg.FreshnessPolicy | None:
    """Return the freshness policy of a view that is refreshed on a schedule.

    Args:
        schedule: cron text, in UTC; None for none.
    """
    if schedule is None:
        return None
    pause = longest_pause(schedule)
    return dg.FreshnessPolicy.time_window(fail_window=2 * pause, warn_window=1.25 * pause)


def longest_pause(schedule: str) -> timedelta:
    """Return the longest time between two ticks in a row: a weekend's for a schedule of working days."""
    ticks = islice(cron_string_iterator(_FRIDAY, schedule, "UTC"), _TICKS)
    return max(after - before for before, after in pairwise(ticks))
