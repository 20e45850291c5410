"""Specify the assets that a refresh materialises: the state tables of a pipeline, and its view."""

from collections.abc import Sequence

import dagster as dg

from deltafold.algebra.results.report import Description
from deltafold.dagster import keys
from deltafold.dagster.automation.freshness import freshness_of
from deltafold.dagster.following import source_keys
from deltafold.pipelines import descriptions
from deltafold.pipelines.catalogue import Pipeline


def specs(pipeline: Pipeline, known: Description | None) -> Sequence[dg.AssetSpec]:
    """Return the state tables, then the view that depends on them.

    Args:
        pipeline: the declared pipeline.
        known: the description of its compiled plan; None gives one state asset.
    """
    sources = list(source_keys(pipeline).values())
    if known is None:
        states = {keys.state(pipeline.name): "The state; its tables are shown after the first refresh and a reload."}
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
                skippable=True,  # a plan that changed since the code was loaded may not have this table any more
            )
            for key, text in states.items()
        ),
        view,
    ]


def _language(pipeline: Pipeline) -> str:
    return pipeline.query.language
