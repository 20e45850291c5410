"""Define the asset that lands one Files source or stream of a pipeline in a Delta table.

A run lands all the partitions that it was launched with in one call; a backfill over a range is one run. A partition
is replaced as a whole, so landing it again is an exact correction, and landing an unchanged one has no effect. With
`changed_only`, which the sensor sets, only partitions whose files changed are landed; afterwards all partitions of the
run equal their folders. A run of one partition without files fails, since it was requested explicitly. In a range, days
without files are common and stay empty; one that was landed before is removed. A run of a stream, which has no
partitions, lands what has arrived.
"""

import dagster as dg
from pydantic import Field

from deltafold.dagster import keys, metadata
from deltafold.dagster.failures import CRASHES
from deltafold.dagster.partitions import partitions_of
from deltafold.dagster.resources import TaskRunner
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.tasks import LandTask


class LandingConfig(dg.Config):
    """Configuration of the landing in one run."""

    changed_only: bool = Field(
        default=False,
        description="Land only partitions whose files changed, instead of all of the run's partitions.",
    )


def landing_asset(pipeline: Pipeline, source: str) -> dg.AssetsDefinition:
    """Return the asset of a source's landed table, partitioned as its pipeline declares."""
    declared = pipeline.declaration.sources[source]
    landed_from = declared.files or declared.stream
    assert landed_from is not None, f"{source} of {pipeline.name} is not landed"
    partitioned = source in pipeline.partitioned
    origin = f"The files of {landed_from.path}" if declared.files else f"The stream of {landed_from.format}"
    folder = {"folder": landed_from.path} if landed_from.path else {}

    @dg.asset(
        key=keys.landed(pipeline.name, source),
        group_name=pipeline.name,
        description=f"{origin}, as a Delta table.",
        partitions_def=partitions_of(pipeline) if partitioned else None,
        backfill_policy=dg.BackfillPolicy.single_run() if partitioned else None,
        metadata={**folder, "format": landed_from.format, "columns": landed_from.schema_ddl},
        kinds={"deltalake", landed_from.format},
        pool=keys.landing_op(pipeline.name, source),
        retry_policy=CRASHES,
    )
    def landing(
        context: dg.AssetExecutionContext, config: LandingConfig, spark: dg.ResourceParam[TaskRunner]
    ) -> dg.MaterializeResult:
        chosen = context.partition_keys if partitioned else []
        landed = spark.run(context, pipeline, LandTask(source, () if config.changed_only else tuple(chosen)))
        for key in chosen:
            context.add_asset_metadata(metadata.of_partition(landed, key), partition_key=key)
        return dg.MaterializeResult(
            metadata=metadata.of_landing(landed), data_version=dg.DataVersion(str(landed.version))
        )

    return landing
