"""Specify the assets of a refresh, the state tables and the view, and materialise them for an epoch.

A step of a run yields results for its own view, and Dagster adds the versions of their inputs. For the views below, and
for a refresh outside of Dagster's runs, `materialisations` gives events with the same tags, so that Dagster treats them
as those of a run.
"""

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from deltafold.algebra.results.report import Description, Report
from deltafold.dagster import following, keys, metadata
from deltafold.pipelines import descriptions
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.declaration.cron import longest_pause
from deltafold.pipelines.tasks import RefreshedView

# The tags that a run sets, as they are stored: https://docs.dagster.io has no names for them.
DATA_VERSION = "dagster/data_version"
CODE_VERSION = "dagster/code_version"
BY_USER = "dagster/data_version_is_user_provided"
INPUT_VERSION = "dagster/input_data_version"
INPUT_EVENT = "dagster/input_event_pointer"
NO_VERSION = "INITIAL"
NO_EVENT = "NULL"

Input = tuple[str, int | None]
"""The data version of an asset, and the number of its event if that is stored already."""


def specs(pipeline: Pipeline, description: Description | None) -> Sequence[dg.AssetSpec]:
    """Return the state tables, then the view that depends on them.

    Args:
        pipeline: the declared pipeline.
        description: that of its compiled plan; None gives one state asset.
    """
    name = pipeline.name
    sources = list(following.source_keys(pipeline).values())
    if description is None:
        states = {keys.state(name): "The state; its tables are shown after the first refresh and a reload."}
    else:
        states = {
            keys.state(name, state.name): f"State by {', '.join(state.keys) or 'no key'}."
            for state in description.states
        }
    tables = [
        dg.AssetSpec(
            key,
            deps=sources,
            description=text,
            group_name=name,
            kinds={"deltalake"},
            skippable=True,  # a plan that changed since the code was loaded may not have this table any more
        )
        for key, text in states.items()
    ]
    view = dg.AssetSpec(
        keys.view(name),
        deps=list(states) or sources,
        description=pipeline.declaration.description or None,
        group_name=name,
        kinds={"deltalake", "spark"},
        code_version=descriptions.digest(pipeline),
        metadata={"query": dg.MetadataValue.md(f"```{pipeline.query.language}\n{pipeline.query.text}\n```")},
        freshness_policy=freshness_of(pipeline.declaration.schedule),
    )
    return [*tables, view]


def freshness_of(schedule: str | None) -> dg.FreshnessPolicy | None:
    """Return the freshness policy of a view that is refreshed on a schedule (cron text, in UTC).

    A view without a schedule has none: it is refreshed when its sources change. A scheduled view is expected after
    every tick: it warns when one refresh is missing and fails when two in a row are.
    """
    if schedule is None:
        return None
    pause = longest_pause(schedule)
    return dg.FreshnessPolicy.time_window(fail_window=2 * pause, warn_window=1.25 * pause)


def materialisations(
    pipeline: Pipeline, done: RefreshedView, instance: dg.DagsterInstance, more: metadata.Metadata | None = None
) -> Iterator[dg.AssetMaterialization]:
    """Return the events of an epoch, in the order of the graph.

    Args:
        pipeline: the pipeline whose view it is.
        done: the view after the epoch.
        instance: to read the sources' last events from.
        more: metadata of the view instead of the report's.
    """
    report = done.report
    version = metadata.data_version(report.generation, report.epoch)
    shown = shown_metadata(pipeline, done, more)
    written: dict[dg.AssetKey, Input] = {}
    for spec in specs(pipeline, done.description):
        inputs = {key: written.get(key) or _input(instance, key) for key in _inputs_of(spec)}
        sentence = report.sentence if spec.key == keys.view(pipeline.name) else None
        made_from = version_tags(version, descriptions.digest(pipeline), inputs)
        yield dg.AssetMaterialization(spec.key, description=sentence, metadata=shown[spec.key], tags=made_from)
        written[spec.key] = (version, None)


def shown_metadata(
    pipeline: Pipeline, done: RefreshedView, more: metadata.Metadata | None = None
) -> Mapping[dg.AssetKey, metadata.Metadata]:
    """Return the metadata of the view, of each state table, and of the single state asset while the plan is unknown.

    Args:
        pipeline: the pipeline whose view it is.
        done: the view after the epoch.
        more: metadata of the view instead of the report's.
    """
    name = pipeline.name
    states = done.description.states
    shown: dict[dg.AssetKey, metadata.Metadata] = {}
    if states:
        shown[keys.state(name)] = metadata.state_metadata(done.description)
    shown |= {keys.state(name, state.name): metadata.of_state(state) for state in states}
    shown[keys.view(name)] = {
        **metadata.of_refresh(done.report, {source: below.name for source, below in pipeline.below.items()}),
        **metadata.view_metadata(done),
        **following.of_tables(done.locations),
        **(more or {}),
    }
    return shown


def refreshed_below(
    chain: Mapping[str, Pipeline], done: RefreshedView, instance: dg.DagsterInstance
) -> Iterator[dg.AssetMaterialization]:
    """Return the events of the views below that were refreshed too, the lowest first.

    Args:
        chain: the pipelines of these views, by name.
        done: the view that was refreshed.
        instance: as of `materialisations`.
    """
    for below in done.below:
        yield from materialisations(chain[below.report.view], below, instance)


def versions_below(spec: dg.AssetSpec, report: Report) -> dict[str, str]:
    """Return the tags for an asset's input views that were refreshed in the same step.

    Dagster itself tags the versions that it looked up before the step, and would show the asset as outdated at once.
    """
    versions = {keys.view(below.view): metadata.data_version(below.generation, below.epoch) for below in report.below}
    return input_tags({key: version for key, version in versions.items() if key in _inputs_of(spec)})


def input_tags(versions: Mapping[dg.AssetKey, str]) -> dict[str, str]:
    """Return the tags of an asset for the versions of its inputs."""
    return {_tag(INPUT_VERSION, key): version for key, version in versions.items()}


def _inputs_of(spec: dg.AssetSpec) -> list[dg.AssetKey]:
    return [dep.asset_key for dep in spec.deps]


def table_version(key: dg.AssetKey, version: int, how: str) -> dg.AssetMaterialization:
    """Return the event of an external Delta table.

    Args:
        key: the asset of the table.
        version: the version that it has.
        how: the origin of that knowledge, in a few words.
    """
    return dg.AssetMaterialization(
        key,
        description=f"Version {version} {how}.",
        metadata={"version": version},
        tags={DATA_VERSION: str(version)},
    )


def version_tags(version: str, code: str, inputs: Mapping[dg.AssetKey, Input]) -> Mapping[str, str]:
    """Return the tags of a materialisation: its data version, and those of its inputs."""
    tags = {DATA_VERSION: version, BY_USER: "true", CODE_VERSION: code}
    for key, (input_version, number) in inputs.items():
        tags[_tag(INPUT_VERSION, key)] = input_version
        tags[_tag(INPUT_EVENT, key)] = NO_EVENT if number is None else str(number)
    return tags


def _input(instance: dg.DagsterInstance, key: dg.AssetKey) -> Input:
    record = following.last_materialisation(instance, key)
    event = record.asset_materialization if record else None
    version = (event.tags or {}).get(DATA_VERSION) if event else None
    return version or NO_VERSION, record.storage_id if record else None


def _tag(prefix: str, key: dg.AssetKey) -> str:
    """Return the name of a tag about one input."""
    return f"{prefix}/{key.to_user_string()}"
