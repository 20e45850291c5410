"""Define the step that refreshes a pipeline's view and materialises its state and view assets.

The step is not partitioned: it consumes all landed changes, from the last epoch's versions to the newest ones. It
materialises the view also if nothing changed, with that verdict and the same data version: so freshness finds the view
up to date, and downstream assets do not count it as new. The views that its query reads are refreshed first, in the
same step; those that changed are materialised too.
"""

from collections.abc import Iterator, Mapping

import dagster as dg
from pydantic import Field

from deltafold.algebra.results.report import Description
from deltafold.dagster import keys, metadata
from deltafold.dagster.failures import CRASHES
from deltafold.dagster.resources import TaskRunner
from deltafold.dagster.steps import epochs
from deltafold.dagster.steps.losses import loss_checks, loss_events, loss_results
from deltafold.dagster.steps.specs import specs
from deltafold.pipelines import descriptions
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.tasks import RefreshedView, RefreshTask


class RefreshConfig(dg.Config):
    """Configuration of the refresh in one run."""

    rebuild: bool = Field(
        default=False, description="Rebuild the state from the sources, as after a change of the query."
    )


def refresh_assets(pipeline: Pipeline, known: Description | None) -> dg.AssetsDefinition:
    """Return the state tables and the view of a pipeline, all materialised by one step.

    Args:
        pipeline: the declared pipeline.
        known: the description of its compiled plan; None shows one state asset.
    """

    shown_assets = specs(pipeline, known)
    chain = {each.name: each for each in (*pipeline.chain, pipeline)}

    @dg.multi_asset(
        name=keys.refresh_op(pipeline.name),
        specs=shown_assets,
        check_specs=loss_checks(pipeline),
        pool=pipeline.name,
        retry_policy=CRASHES,
    )
    def refresh(
        context: dg.AssetExecutionContext, config: RefreshConfig, spark: dg.ResourceParam[TaskRunner]
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        done = spark.run(context, pipeline, RefreshTask(config.rebuild))
        description, report = done.description, done.report
        for each in (*done.below, done):  # another machine may have refreshed it
            descriptions.save_description(chain[each.report.view], each.description, context.log.info)
        _report_below(context, chain, done)
        (context.log.warning if report.lost else context.log.info)(report.sentence)
        if known is None or known.states != description.states:
            context.log.info("The state tables are new: reload the code location to see them.")
        version = dg.DataVersion(metadata.data_version(report.generation, report.epoch))
        shown = epochs.shown_metadata(pipeline, done)
        for spec in shown_assets:
            if spec.key in shown:  # a plan that changed since the code was loaded may lack a state
                tags = epochs.versions_below(spec, report)
                yield dg.MaterializeResult(
                    asset_key=spec.key, metadata=shown[spec.key], data_version=version, tags=tags
                )
        yield from loss_results(pipeline, report)

    return refresh


def _report_below(context: dg.AssetExecutionContext, chain: Mapping[str, Pipeline], done: RefreshedView) -> None:
    """Materialise the views below that were refreshed, and warn where one was rebuilt for a lost source."""
    for event in epochs.moved_below(chain, done, context.instance):
        context.log_event(event)
    for below in done.below:
        for warning in loss_events(chain[below.report.view], below.report):
            context.instance.report_runless_asset_event(warning)
