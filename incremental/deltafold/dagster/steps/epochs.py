"""Materialise the tables of an epoch: the states, then the view, with metadata and data versions.

A step of a run yields such results for its own view, and Dagster adds the versions of their inputs. For the views
below, and for a refresh outside of Dagster's runs, `materialisations` gives events with the same tags, so that Dagster
treats them as those of a run.
"""

from collections.abc import Iterator, Mapping

import dagster as dg

from deltafold.algebra.results.report import Report
from deltafold.dagster import keys, locations, metadata
from deltafold.dagster.following import last_materialisation
from deltafold.dagster.steps.specs import specs
from deltafold.pipelines import descriptions
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.tasks import RefreshedView

# The tags that a run sets, as they are stored: https://docs.dagster.io has no names for them.
DATA_VERSION, CODE_VERSION = "dagster/data_version", "dagster/code_version"
BY_USER = "dagster/data_version_is_user_provided"
INPUT_VERSION, INPUT_EVENT = "dagster/input_data_version", "dagster/input_event_pointer"
NO_VERSION, NO_EVENT = "INITIAL", "NULL"

Input = tuple[str, int | None]
"""The data version of an asset, and the number of its event if that is stored already."""


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
    given: dict[dg.AssetKey, Input] = {}
    for spec in specs(pipeline, done.description):
        inputs = {key: given.get(key) or _input(instance, key) for key in _inputs_of(spec)}
        sentence = report.sentence if spec.key == keys.view(pipeline.name) else None
        made_from = version_tags(version, descriptions.digest(pipeline), inputs)
        yield dg.AssetMaterialization(spec.key, description=sentence, metadata=shown[spec.key], tags=made_from)
        given[spec.key] = (version, None)


def shown_metadata(
    pipeline: Pipeline, done: RefreshedView, more: metadata.Metadata | None = None
) -> Mapping[dg.AssetKey, metadata.Metadata]:
    """Return the metadata of the view, of each state table, and of the single state asset while the plan is unknown.

    Args:
        pipeline: the pipeline whose view it is.
        done: the view after the epoch.
        more: metadata of the view instead of the report's.
    """
    states = done.description.states
    whole = {keys.state(pipeline.name): metadata.state_metadata(done.description)} if states else {}
    below = {source: each.name for source, each in pipeline.below.items()}
    view = {
        **metadata.of_refresh(done.report, below),
        **metadata.view_metadata(done),
        **locations.of_tables(done.locations),
        **(more or {}),
    }
    each = {keys.state(pipeline.name, state.name): metadata.of_state(state) for state in states}
    return {**whole, **each, keys.view(pipeline.name): view}


def moved_below(
    chain: Mapping[str, Pipeline], done: RefreshedView, instance: dg.DagsterInstance
) -> Iterator[dg.AssetMaterialization]:
    """Return the events of the views below that a refresh took to other epochs, the lowest first.

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
    versions = {keys.view(each.view): metadata.data_version(each.generation, each.epoch) for each in report.below}
    return {_tag(INPUT_VERSION, key): version for key, version in versions.items() if key in _inputs_of(spec)}


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
    found = {
        DATA_VERSION: version,
        BY_USER: "true",
        CODE_VERSION: code,
    }
    for key, (input_version, number) in inputs.items():
        found[_tag(INPUT_VERSION, key)] = input_version
        found[_tag(INPUT_EVENT, key)] = NO_EVENT if number is None else str(number)
    return found


def _input(instance: dg.DagsterInstance, key: dg.AssetKey) -> Input:
    record = last_materialisation(instance, key)
    event = record.asset_materialization if record else None
    version = (event.tags or {}).get(DATA_VERSION) if event else None
    return version or NO_VERSION, record.storage_id if record else None


def _tag(prefix: str, key: dg.AssetKey) -> str:
    """Return the name of a tag about one input."""
    return f"{prefix}/{key.to_user_string()}"
