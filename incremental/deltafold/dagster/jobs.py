"""Define the jobs of a pipeline: one that lands and refreshes, and one that only refreshes.

    <name>_update     lands the run's partition, or range of partitions, then refreshes and checks, in one run and one
                      Spark. A backfill of this job over many partitions is still one run for each unbroken range.
    <name>_refresh    refreshes from the landed tables, and checks.

Partitioned and unpartitioned assets share the run: it contains the refresh step once, however many partitions it lands.
A pipeline that lands nothing has only the second.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from deltafold.dagster import keys
from deltafold.pipelines.catalogue import Pipeline

AssetJob = Any
"""What dg.define_asset_job returns: its class has no public name."""


def jobs_of(pipeline: Pipeline) -> Sequence[AssetJob]:
    """Return the jobs of a pipeline; their steps run in one process, so that they share one Spark."""
    refreshed = dg.AssetSelection.assets(keys.view(pipeline.name)).required_multi_asset_neighbors()
    landed = dg.AssetSelection.assets(*(keys.landed(pipeline.name, source) for source in pipeline.landed))
    jobs = [
        dg.define_asset_job(
            keys.refresh_job(pipeline.name),
            selection=refreshed,
            description=f"Refreshes {pipeline.name} from the landed tables, and checks it.",
        )
    ]
    if pipeline.landed:
        jobs.append(
            dg.define_asset_job(
                keys.update_job(pipeline.name),
                selection=landed | refreshed,
                description=f"Lands files for {pipeline.name}, then refreshes and checks it.",
            )
        )
    return jobs


def landing_what_changed(pipeline: Pipeline, sources: Sequence[str]) -> Mapping[str, Any]:
    """Return run config with which landing steps land changed partitions only, instead of all of the run."""
    return {"ops": {keys.landing_op(pipeline.name, source): {"config": {"changed_only": True}} for source in sources}}
