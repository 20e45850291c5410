"""Assets room: one refresh as one step. In: a pipeline and what is known of its plan. Out: its state and view assets.

The step is not partitioned: it consumes whatever has been landed, from the last epoch's versions to the newest ones.
It materialises the view also when there was nothing to do, with that verdict and the data version it had: the view has
been found up to date, which is what freshness asks, and nothing downstream takes it for new.
The views that its query reads are refreshed first, in the same step; those that moved are materialised too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from assets import descriptions, keys, metadata
from assets.failures import CRASHES, failures
from assets.following import source_keys
from assets.freshness import freshness_of
from assets.resources import SparkResource
from incremental.algebra.report import Description, Report
from pipelines import catalogue
from pipelines.catalogue import Pipeline

if TYPE_CHECKING:
    from incremental.api import View


class RefreshConfig(dg.Config):
    """How one run refreshes."""

    rebuild: bool = Field(
        default=False, description="Build the state anew from the sources, as after a change of the query."
    )


def refresh_assets(pipeline: Pipeline, known: Description | None) -> dg.AssetsDefinition:
    """The state tables and the view of a pipeline, all materialised by one step.

    Args:
        pipeline: the declared pipeline.
        known: the description of its compiled plan; None shows one state asset.
    """

    @dg.multi_asset(
        name=keys.refresh_op(pipeline.name),
        specs=_specs(pipeline, known),
        pool=pipeline.name,
        retry_policy=CRASHES,
    )
    def refresh(
        context: dg.AssetExecutionContext, config: RefreshConfig, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult]:
        with failures(pipeline):
            _, view = spark.open(pipeline)
            report = catalogue.refresh(pipeline, view, context.log.info, config.rebuild)
            description = view.description()
            told = _told(pipeline, view, description, report)
        for event in _moved(pipeline, report):
            context.log_event(event)
        context.log.info(report.sentence)
        if descriptions.save(pipeline, description):
            context.log.info("The plan's description is new: reload the code location to see its state tables.")
        version = dg.DataVersion(metadata.stand(report.generation, report.epoch))
        for state, shown in _states(pipeline, description).items():
            if state in context.selected_asset_keys:
                yield dg.MaterializeResult(asset_key=state, metadata=shown, data_version=version)
        yield dg.MaterializeResult(asset_key=keys.view(pipeline.name), metadata=told, data_version=version)

    return refresh


def _specs(pipeline: Pipeline, known: Description | None) -> Sequence[dg.AssetSpec]:
    sources = list(source_keys(pipeline).values())
    if known is None:
        states = {keys.state(pipeline.name): "The state; its tables show after the first refresh and a reload."}
    else:
        states = {
            keys.state(pipeline.name, state.name): f"State by {', '.join(state.keys) or 'no key'}."
            for state in known.states
        }
    view = dg.AssetSpec(
        keys.view(pipeline.name),
        deps=[*states, *([] if states else sources)],
        description=pipeline.declaration.description or None,
        group_name=pipeline.name,
        kinds={"deltalake", "spark"},
        code_version=descriptions.digest(pipeline),
        metadata={"query": dg.MetadataValue.md(f"```{_language(pipeline)}\n{pipeline.query.text}\n```")},
        freshness_policy=freshness_of(pipeline.declaration.schedule),
    )
    return [
        *(
            dg.AssetSpec(
                key,
                deps=sources,
                description=text,
                group_name=pipeline.name,
                kinds={"deltalake"},
                skippable=True,  # a plan that has changed since the code was loaded may not have this table any more
            )
            for key, text in states.items()
        ),
        view,
    ]


def _language(pipeline: Pipeline) -> str:
    return "python" if pipeline.query.function else "sql"


def _states(pipeline: Pipeline, description: Description) -> Mapping[dg.AssetKey, metadata.Metadata]:
    """What to tell of each state table, and of the asset that stands for all of them where the plan was not known."""
    whole = {keys.state(pipeline.name): metadata.of_states(description)} if description.states else {}
    return whole | {keys.state(pipeline.name, state.name): metadata.of_state(state) for state in description.states}


def _moved(pipeline: Pipeline, report: Report) -> Iterator[dg.AssetMaterialization]:
    """The views below that the refresh moved, the lowest first."""
    below = {each.view: each for each in report.below}
    for each in pipeline.chain:
        done = below.get(each.name)
        if done is not None and done.verdict != "nothing to do":
            told = metadata.of_refresh(replace(done, below=report.below), _views(each))
            tags = {"dagster/data_version": metadata.stand(done.generation, done.epoch)}
            yield dg.AssetMaterialization(keys.view(each.name), description=done.sentence, metadata=told, tags=tags)


def _views(pipeline: Pipeline) -> Mapping[str, str]:
    """The view behind a source, by the source's name."""
    return {source: below.name for source, below in pipeline.below.items()}


def _told(pipeline: Pipeline, view: "View", description: Description, report: Report) -> metadata.Metadata:
    return {
        **metadata.of_refresh(report, _views(pipeline)),
        **metadata.of_view(description, view.answer().count(), view.address, view.history()),
    }
