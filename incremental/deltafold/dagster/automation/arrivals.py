"""Request one run for the partition folders that were added, changed or removed since the last look.

One run lands all of them: its range goes from the first to the last changed partition, and it lands those whose files
changed (`changed_only`). Keys of new dynamic partitions are registered first. The cursor records the folders' state, so
each change is requested once; if a request is lost or repeated, the run itself finds the partitions to land.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from deltafold.dagster import jobs, keys
from deltafold.dagster.automation.folders import partition_signatures
from deltafold.dagster.partitions import can_be, partitions_of, range_tags
from deltafold.landing.folder import UNPARTITIONED
from deltafold.pipelines.catalogue import Pipeline

Seen = Mapping[str, Mapping[str, str]]
"""source → partition key → signature"""


@dataclass(frozen=True)
class Arrivals:
    """The reaction to changed folders: a run, and the dynamic partitions to register before it."""

    request: dg.RunRequest
    new_keys: Sequence[str]


def look(pipeline: Pipeline, now: datetime) -> Seen:
    """Return the signatures of partition folders by source and key, without future days."""
    seen: dict[str, Mapping[str, str]] = {}
    for name, (path, column) in pipeline.folders.items():
        signed = partition_signatures(path, column)
        seen[name] = {
            key: signature for key, signature in signed.items() if key == UNPARTITIONED or can_be(pipeline, key, now)
        }
    return seen


def changed_keys(before: Seen, after: Seen) -> Sequence[str]:
    """Return the keys of all sources whose signatures differ between two ticks, in order."""
    changed = {
        key
        for source in before.keys() | after.keys()
        for key in before.get(source, {}).keys() | after.get(source, {}).keys()
        if before.get(source, {}).get(key) != after.get(source, {}).get(key)
    }
    return sorted(changed)


def request(
    pipeline: Pipeline, changed: Sequence[str], refreshed: Sequence[dg.AssetKey], instance: dg.DagsterInstance
) -> Arrivals:
    """Return the run that lands the changed partitions and refreshes.

    Args:
        pipeline: the pipeline, which lands at least one source.
        changed: keys that changed, at least one.
        refreshed: the assets of its refresh step.
        instance: knows the dynamic partitions so far.
    """
    job = keys.update_job(pipeline.name)
    cut = [key for key in changed if key != UNPARTITIONED]
    if not cut and pipeline.partitioned:
        whole = [source for source in pipeline.landed if source not in pipeline.partitioned]
        selection = [*(keys.landed(pipeline.name, source) for source in whole), *refreshed]
        config = jobs.landing_what_changed(pipeline, whole)
        return Arrivals(dg.RunRequest(job_name=job, asset_selection=selection, run_config=config), [])
    order, new_keys = _order(pipeline, cut, instance)
    tags = range_tags(cut, order) if cut else {}
    config = jobs.landing_what_changed(pipeline, pipeline.landed)
    return Arrivals(dg.RunRequest(job_name=job, tags=tags, run_config=config), new_keys)


def _order(pipeline: Pipeline, cut: Sequence[str], instance: dg.DagsterInstance) -> tuple[Sequence[str], Sequence[str]]:
    """Return all partition keys in Dagster's order, and those that Dagster does not know yet."""
    partitions = partitions_of(pipeline)
    if isinstance(partitions, dg.DynamicPartitionsDefinition):
        known = instance.get_dynamic_partitions(pipeline.name)
        new_keys = [key for key in cut if key not in known]
        return [*known, *new_keys], new_keys
    return (partitions.get_partition_keys(datetime.now(UTC)) if partitions else []), []
