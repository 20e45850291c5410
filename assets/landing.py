"""Assets room: dropped files into a Delta table. In: a pipeline and one Files source of it. Out: its landing asset.

A run lands all the partitions that it was launched with in one call; a backfill over a range is one run. A partition
is replaced as a whole, so landing it again is an exact correction and landing what did not change changes nothing. With
`changed_only`, as the sensor asks, the folder decides what is landed, and the run's partitions are those known to equal
their folders afterwards.
A single partition without files fails: somebody meant it. In a range, days without files are common and stay empty.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from assets import keys, metadata
from assets.failures import CRASHES, failures
from assets.folders import partition_signatures
from assets.partitions import partitions_of
from assets.resources import SparkResource
from incremental.algebra.errors import SourceError
from incremental.algebra.report import Landing
from pipelines.catalogue import Pipeline

if TYPE_CHECKING:
    from incremental.api import Warehouse


class LandingConfig(dg.Config):
    """How one run lands."""

    changed_only: bool = Field(
        default=False,
        description="Land every partition whose files changed, instead of each of the run's partitions in any case.",
    )


def landing_asset(pipeline: Pipeline, source: str) -> dg.AssetsDefinition:
    """The asset of a source's landed table, partitioned as its pipeline declares."""
    files = pipeline.declaration.sources[source].files
    assert files is not None, f"{source} of {pipeline.name} is not landed"
    partitioned = files.partition_by is not None

    @dg.asset(
        key=keys.landed(pipeline.name, source),
        group_name=pipeline.name,
        description=f"The files dropped in {files.path}, as a Delta table.",
        partitions_def=partitions_of(pipeline) if partitioned else None,
        backfill_policy=dg.BackfillPolicy.single_run() if partitioned else None,
        metadata={"folder": files.path, "format": files.format, "columns": files.schema_ddl},
        kinds={"deltalake", files.format},
        pool=keys.landing_op(pipeline.name, source),
        retry_policy=CRASHES,
    )
    def landing(context: dg.AssetExecutionContext, config: LandingConfig, spark: SparkResource) -> dg.MaterializeResult:
        chosen = context.partition_keys if partitioned else []
        with failures():
            warehouse, _ = spark.open(pipeline)
            if config.changed_only or not chosen:
                landed = warehouse.land(source)
            else:
                present = partition_signatures(files.path, files.partition_by)
                landed = _land_range(warehouse, source, chosen, [key for key in chosen if key in present])
        for key in chosen:
            context.add_asset_metadata(metadata.of_partition(landed, key), partition_key=key)
        return dg.MaterializeResult(
            metadata=metadata.of_landing(landed), data_version=dg.DataVersion(str(landed.version))
        )

    return landing


def _land_range(warehouse: "Warehouse", source: str, chosen: Sequence[str], present: Sequence[str]) -> Landing:
    """Lands the partitions that have files in one call; of the others, those landed once are removed."""
    landed = warehouse.land(source, present or chosen)  # none of them has files: this says so
    for key in [key for key in chosen if key not in present] if present else []:
        with suppress(SourceError):  # it was never landed either
            gone = warehouse.land(source, [key])
            removed = (*landed.removed, *gone.removed)
            landed = replace(landed, version=gone.version, removed=removed, quarantined=gone.quarantined)
    return landed
