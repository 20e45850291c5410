"""Define the step that refreshes a pipeline's view and materialises its state and view assets.

The step is not partitioned: it consumes all landed changes, from the last epoch's versions to the newest ones. It
materialises the view also if nothing changed, with that verdict and the same data version: so freshness finds the view
up to date, and downstream assets do not count it as new. The views that its query reads are refreshed first, in the
same step; those that changed are materialised too.
"""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from assets import keys, metadata
from assets.failures import CRASHES, failures
from assets.resources import SparkResource
from assets.steps import epochs
from assets.steps.specs import specs
from incremental.algebra.results.report import Description
from pipelines import catalogue, descriptions
from pipelines.catalogue import Pipeline


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

    @dg.multi_asset(
        name=keys.refresh_op(pipeline.name),
        specs=shown_assets,
        pool=pipeline.name,
        retry_policy=CRASHES,
    )
    def refresh(
        context: dg.AssetExecutionContext, config: RefreshConfig, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult]:
        with failures(pipeline):
            _, view = spark.open(pipeline)
            report = catalogue.refresh(pipeline, view, context.log.info, config.rebuild)
            description = descriptions.current_description(pipeline, view)
            view_metadata = epochs.view_with_versions(pipeline, view, description, report)
            moved = list(epochs.moved_below(pipeline, view, report, context.instance))
        for event in moved:
            context.log_event(event)
        context.log.info(report.sentence)
        if known is None or known.states != description.states:
            context.log.info("The state tables are new: reload the code location to see them.")
        version = dg.DataVersion(metadata.data_version(report.generation, report.epoch))
        shown = {**epochs.states_with_versions(pipeline, description), keys.view(pipeline.name): view_metadata}
        for spec in shown_assets:
            if spec.key in shown:  # a plan that changed since the code was loaded may lack a state
                tags = epochs.versions_below(spec, report)
                yield dg.MaterializeResult(
                    asset_key=spec.key, metadata=shown[spec.key], data_version=version, tags=tags
                )

    return refresh
