"""Derive Dagster's partitions of a pipeline's landings from its declaration: definition, days, ranges.

All partitioned sources of a pipeline have the same partitions, so there is one definition per pipeline: a run of one
partition, or of a range, means the same for each of its landing assets. A range lets many partitions go through one
run: two run tags name its first and last key. Backfills set them through `BackfillPolicy.single_run()`, and the sensors
set them too.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

import dagster as dg

from deltafold.pipelines.catalogue import DeclarationError, Pipeline

RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"

PartitionsDefinition = dg.DailyPartitionsDefinition | dg.DynamicPartitionsDefinition


def partitions_of(pipeline: Pipeline) -> PartitionsDefinition | None:
    """Return Dagster's partitions of a pipeline's landed tables; None if no source is partitioned.

    Days are UTC. Today is a partition too: its folder can be landed when it exists, and again when files are added.
    """
    if not pipeline.partitioned:
        return None
    partitioning = pipeline.declaration.partitioning
    if partitioning.kind == "dynamic" or partitioning.start is None:
        return dg.DynamicPartitionsDefinition(name=pipeline.name)
    end = (partitioning.end + timedelta(days=1)).isoformat() if partitioning.end else None  # Dagster's end is exclusive
    return dg.DailyPartitionsDefinition(start_date=partitioning.start.isoformat(), end_date=end, end_offset=1)


def yesterday(now: datetime) -> str:
    """Return the key of the last whole day (UTC) before a moment."""
    return (now.astimezone(UTC).date() - timedelta(days=1)).isoformat()


def can_be(pipeline: Pipeline, key: str, now: datetime) -> bool:
    """Return whether a folder's key is a partition of the pipeline at this moment; a future day is not one yet.

    Raises:
        DeclarationError: the key is invalid as a dynamic partition; ignoring it would mean never to land it.
    """
    partitioning = pipeline.declaration.partitioning
    if partitioning.kind == "dynamic":
        return bool(pipeline.check_partition(key))
    try:
        return date.fromisoformat(partitioning.check(key)) <= now.astimezone(UTC).date()
    except ValueError:
        return False


def range_tags(keys: Collection[str], order: Sequence[str]) -> Mapping[str, str]:
    """Return the run tags of the smallest range that holds all of the keys.

    Args:
        keys: at least one key, each of them in `order`.
        order: all keys in the definition's own order.
    """
    positions = [order.index(key) for key in keys]
    return {RANGE_START: order[min(positions)], RANGE_END: order[max(positions)]}


def refuse_other_days(pipeline: Pipeline, source: str, partitions: dg.PartitionsDefinition[str] | None) -> None:
    """Raise DeclarationError for partitions that are not the days of a source: each key lands the folder of one."""
    if not isinstance(partitions_of(pipeline), dg.DailyPartitionsDefinition):
        return
    is_time = isinstance(partitions, dg.TimeWindowPartitionsDefinition)
    if not (is_time and partitions.is_basic_daily and str(cast(Any, partitions).fmt) == "%Y-%m-%d"):
        raise DeclarationError(
            f"pipeline `{pipeline.name}`: the partitions of source {source} are days, and its asset has others, of "
            "which each would land one day. Give it daily partitions with keys such as 2024-05-31."
        )
