"""Define the steps of a pipeline: land a source, refresh the view, maintain the tables.

A landing lands all the partitions that its run was launched with in one call; a backfill over a range is one run. A
partition is replaced as a whole, so landing it again is an exact correction, and landing an unchanged one has no
effect. With `changed_only`, which the sensor sets, only partitions whose files changed are landed; afterwards all
partitions of the run equal their folders. A run of one partition without files fails, since it was requested
explicitly. In a range, days without files are common and stay empty; one that was landed before is removed. A run of a
stream, which has no partitions, lands what has arrived.

A refresh is not partitioned: it consumes all landed changes, from the last epoch's versions to the newest ones. It
materialises the view also if nothing changed, with that verdict and the same data version: so freshness finds the view
up to date, and downstream assets do not count it as new. The views that its query reads are refreshed first, in the
same step; those that changed are materialised too.

Maintenance compacts the tables and removes old files that no reader needs. No row changes, so no asset is materialised
unless the tables were copied into more buckets; the step's output shows the rewritten and removed files.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from deltafold.algebra.results.report import Description
from deltafold.dagster import epochs, keys, metadata
from deltafold.dagster.checks import loss_checks, loss_events, loss_results
from deltafold.dagster.partitions import partitions_of
from deltafold.dagster.task_runner import CRASHES, TaskRunner
from deltafold.pipelines import descriptions
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.tasks import LandTask, MaintainTask, RefreshedView, RefreshTask

Materialised = dg.MaterializeResult[Any]


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
    ) -> Materialised:
        return land(context, spark, pipeline, source, config)

    return landing


def land(
    context: dg.AssetExecutionContext, spark: TaskRunner, pipeline: Pipeline, source: str, config: LandingConfig
) -> Materialised:
    """Land the run's partitions of a source, or all of an unpartitioned one, and return its materialisation."""
    partitions: list[str] = list(context.partition_keys) if source in pipeline.partitioned else []
    landed = spark.run(context, pipeline, LandTask(source, () if config.changed_only else tuple(partitions)))
    for key in partitions:
        context.add_asset_metadata(metadata.of_partition(landed, key), partition_key=key)
    return dg.MaterializeResult(metadata=metadata.of_landing(landed), data_version=dg.DataVersion(str(landed.version)))


class RefreshConfig(dg.Config):
    """Configuration of the refresh in one run."""

    rebuild: bool = Field(
        default=False, description="Rebuild the state from the sources, as after a change of the query."
    )


def refresh_assets(pipeline: Pipeline, description: Description | None) -> dg.AssetsDefinition:
    """Return the state tables and the view of a pipeline, all materialised by one step.

    Args:
        pipeline: the declared pipeline.
        description: that of its compiled plan; None shows one state asset.
    """
    specs = epochs.specs(pipeline, description)
    chain = {pipeline.name: pipeline for pipeline in (*pipeline.chain, pipeline)}

    @dg.multi_asset(
        name=keys.refresh_op(pipeline.name),
        specs=specs,
        check_specs=loss_checks(pipeline),
        pool=pipeline.name,
        retry_policy=CRASHES,
    )
    def refresh(  # pyright: ignore[reportUnknownParameterType]
        context: dg.AssetExecutionContext, config: RefreshConfig, spark: dg.ResourceParam[TaskRunner]
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:  # pyright: ignore[reportMissingTypeArgument]
        done = spark.run(context, pipeline, RefreshTask(rebuild=config.rebuild))
        report = done.report
        for refreshed in (*done.below, done):  # another machine may have refreshed it
            descriptions.save_description(chain[refreshed.report.view], refreshed.description, context.log.info)
        _report_below(context, chain, done)
        (context.log.warning if report.lost else context.log.info)(report.sentence)
        if description is None or description.states != done.description.states:
            context.log.info("The state tables are new: reload the code location to see them.")
        version = dg.DataVersion(metadata.data_version(report.generation, report.epoch))
        shown = epochs.shown_metadata(pipeline, done)
        for spec in specs:
            if spec.key in shown:  # a plan that changed since the code was loaded may lack a state
                tags = epochs.versions_below(spec, report)
                yield dg.MaterializeResult(
                    asset_key=spec.key, metadata=shown[spec.key], data_version=version, tags=tags
                )
        yield from loss_results(pipeline, report)

    return refresh


def _report_below(context: dg.AssetExecutionContext, chain: Mapping[str, Pipeline], done: RefreshedView) -> None:
    """Materialise the views below that were refreshed, and warn where one was rebuilt for a lost source."""
    for event in epochs.refreshed_below(chain, done, context.instance):
        context.log_event(event)
    for below in done.below:
        for warning in loss_events(chain[below.report.view], below.report):
            context.instance.report_runless_asset_event(warning)


class UpkeepConfig(dg.Config):
    """Configuration of the maintenance in one run."""

    retention_hours: float = 168


def upkeep_job(pipeline: Pipeline) -> dg.JobDefinition:
    """Return the job with one step that maintains a pipeline's tables, in the pool of the refresh."""

    @dg.op(
        name=keys.maintain_op(pipeline.name),
        out=dg.Out(dg.Nothing),
        pool=pipeline.name,
        retry_policy=CRASHES,
        description=f"Compacts the tables of {pipeline.name} and removes old files that no reader needs.",
    )
    def maintain(context: dg.OpExecutionContext, config: UpkeepConfig, spark: dg.ResourceParam[TaskRunner]) -> None:
        done = spark.run(context, pipeline, MaintainTask(config.retention_hours))
        if done.copied is not None:
            for event in epochs.materialisations(pipeline, done.copied, context.instance):
                context.log_event(event)
        context.log.info(done.upkeep.sentence)
        context.add_output_metadata(dict(metadata.of_upkeep(done.upkeep)))

    @dg.job(  # pyright: ignore[reportUnknownMemberType]
        name=keys.maintain_job(pipeline.name),
        description=f"Maintains the tables of {pipeline.name}: compaction, and removal of old files.",
    )
    def job() -> None:
        maintain()

    return job
