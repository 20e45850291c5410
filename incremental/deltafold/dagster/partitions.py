"""Derive Dagster's partitions of a pipeline's landings from its declaration: definition, days, ranges.

All partitioned sources of a pipeline have the same partitions, so there is one definition per pipeline: a run of one
partition, or of a range, means the same for each of its landing assets. A range lets many partitions go through one
run: two run tags name its first and last key. Backfills set them through `BackfillPolicy.single_run()`, and the sensors
set them too.

The asset of a landing may have other partitions than its folders: weeks, months, or days of another format. Each lands
the folders of all days in its window.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

import dagster as dg

from deltafold.pipelines.catalogue import DeclarationError, Pipeline

RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"

WHOLE_DAYS = frozenset({"@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"})
"""Cron texts of windows that begin at midnight."""

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


def refuse_other_partitions(pipeline: Pipeline, source: str, partitions: dg.PartitionsDefinition[str] | None) -> None:
    """Raise DeclarationError for partitions of a landed source whose days, the folders, cannot be derived.

    Those of folders with any names may be anything that names them; longer windows have to begin at midnight, so that
    each day is in one.
    """
    if is_by_window(partitions) or _is_daily(partitions):
        return
    if not isinstance(partitions_of(pipeline), dg.DailyPartitionsDefinition):
        is_time = isinstance(partitions, dg.TimeWindowPartitionsDefinition)
        if not is_time or partitions.cron_schedule.split()[2:] == ["*", "*", "*"]:
            return
    raise DeclarationError(
        f"pipeline `{pipeline.name}`: source {source}: the partitions of its asset do not consist of whole days, so "
        "their folders are not known. Give it daily, weekly or monthly partitions that begin at midnight."
    )


def is_by_window(partitions: dg.PartitionsDefinition[str] | None) -> bool:
    """Return whether a partition lands all folders of the days in its time window, instead of the folder of its key."""
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition) or _is_daily(partitions):
        return False
    cron = partitions.cron_schedule
    return cron in WHOLE_DAYS or cron.split()[:2] == ["0", "0"]


def _is_daily(partitions: dg.PartitionsDefinition[str] | None) -> bool:
    """Return whether partitions are days, called as the folders of days are."""
    is_time = isinstance(partitions, dg.TimeWindowPartitionsDefinition)
    return is_time and partitions.is_basic_daily and str(cast(Any, partitions).fmt) == "%Y-%m-%d"


def folders_of(
    pipeline: Pipeline, partitions: dg.PartitionsDefinition[str] | None, key: str, now: datetime
) -> tuple[str, ...]:
    """Return the keys of the folders that a partition of an asset lands; there may be no such folder.

    Of days, those that the pipeline declares, until today. Of folders with any names, those that are called as the
    partition, or as one of its days. Dates are those of the time zone of the partitions.
    """
    if not (isinstance(partitions, dg.TimeWindowPartitionsDefinition) and is_by_window(partitions)):
        return (key,)
    window = partitions.time_window_for_partition_key(key)
    first, after = window.start.date(), window.end.date()
    days = [first + timedelta(days=number) for number in range((after - first).days)]
    if pipeline.declaration.partitioning.kind == "daily":
        return tuple(day.isoformat() for day in days if can_be(pipeline, day.isoformat(), now))
    spelled = (day.strftime(pattern) for day in days for pattern in ("%Y-%m-%d", str(cast(Any, partitions).fmt)))
    return tuple(dict.fromkeys((key, *spelled)))


def partitions_by_folder(
    pipeline: Pipeline, partitions: dg.PartitionsDefinition[str] | None, folders: Iterable[str], now: datetime
) -> dict[str, str]:
    """Return the partitions of an asset that land folders, by the folders' keys, without folders that none lands yet.

    Raises:
        DeclarationError: as `can_be`.
    """
    possible = [folder for folder in folders if can_be(pipeline, folder, now)]
    if partitions is None or isinstance(partitions, dg.DynamicPartitionsDefinition) or not possible:
        return {folder: folder for folder in possible}
    keys = partitions.get_partition_keys(now)
    if is_by_window(partitions):
        landed = {folder: key for key in keys for folder in folders_of(pipeline, partitions, key, now)}
    else:
        landed = {key: key for key in keys}
    return {folder: landed[folder] for folder in possible if folder in landed}
