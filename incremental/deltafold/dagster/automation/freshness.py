"""Derive Dagster's freshness policy of a view from the pipeline's cron schedule.

A view without a schedule has none: it is refreshed when its sources change. A scheduled view is expected after every
tick: it warns when one refresh is missing and fails when two in a row are.
"""

import dagster as dg

from deltafold.pipelines.declaration.cron import longest_pause


def freshness_of(schedule: str | None) -> dg.FreshnessPolicy | None:
    """Return the freshness policy of a view that is refreshed on a schedule.

    Args:
        schedule: cron text, in UTC; None for none.
    """
    if schedule is None:
        return None
    pause = longest_pause(schedule)
    return dg.FreshnessPolicy.time_window(fail_window=2 * pause, warn_window=1.25 * pause)
