"""Materialise the tables of an epoch: the states, then the view, with metadata and data versions.

A step of a run yields such results for its own view, and Dagster adds the versions of their inputs. For the views
below, and for a refresh outside of Dagster's runs, `materialisations` gives events with the same tags, so that Dagster
treats them as those of a run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.definitions import data_version as tags  # the names of the tags that a run sets are not public

from assets import keys, locations, metadata
from assets.following import last_materialisation
from assets.steps.specs import specs
from incremental.algebra.results.report import NOTHING_TO_DO, Description, Report
from pipelines import descriptions
from pipelines.catalogue import Pipeline

if TYPE_CHECKING:
    from incremental.api import View

Input = tuple[str, int | None]
"""The data version of an asset, and the number of its event if that is stored already."""


def materialisations(
    pipeline: Pipeline,
    view: "View",
    report: Report,
    instance: dg.DagsterInstance,
    more: metadata.Metadata | None = None,
) -> Iterator[dg.AssetMaterialization]:
    """Return the events of an epoch, in the order of the graph.

    Args:
        pipeline: the pipeline whose view it is.
        view: the view after the epoch.
        report: of the refresh.
        instance: to read the sources' last events from.
        more: metadata of the view instead of the report's.
    """
    description = descriptions.current_description(pipeline, view)
    version = metadata.data_version(report.generation, report.epoch)
    view_metadata = {**view_with_versions(pipeline, view, description, report), **(more or {})}
    shown = {**states_with_versions(pipeline, description), keys.view(pipeline.name): view_metadata}
    given: dict[dg.AssetKey, Input] = {}
    for spec in specs(pipeline, description):
        inputs = {key: given.get(key) or _input(instance, key) for key in _inputs_of(spec)}
        sentence = report.sentence if spec.key == keys.view(pipeline.name) else None
        made_from = version_tags(version, descriptions.digest(pipeline), inputs)
        yield dg.AssetMaterialization(spec.key, description=sentence, metadata=shown[spec.key], tags=made_from)
        given[spec.key] = (version, None)


def states_with_versions(pipeline: Pipeline, description: Description) -> dict[dg.AssetKey, metadata.Metadata]:
    """Return the metadata of each state table, and of the single state asset while the plan is unknown."""
    whole = {keys.state(pipeline.name): metadata.state_metadata(description)} if description.states else {}
    return whole | {keys.state(pipeline.name, state.name): metadata.of_state(state) for state in description.states}


def view_with_versions(pipeline: Pipeline, view: "View", description: Description, report: Report) -> metadata.Metadata:
    """Return the metadata of the view."""
    below = {source: each.name for source, each in pipeline.below.items()}
    return {
        **metadata.of_refresh(report, below),
        **metadata.view_metadata(description, view.count(), view.address, view.history()),
        **locations.of_tables(pipeline, view, report),
    }


def moved_below(
    pipeline: Pipeline, view: "View", report: Report, instance: dg.DagsterInstance
) -> Iterator[dg.AssetMaterialization]:
    """Return the events of the views below that a refresh took to other epochs, the lowest first."""
    done = {each.view: each for each in report.below}
    for name, (below, its_view) in descriptions.chain(pipeline, view).items():
        if name in done and done[name].verdict != NOTHING_TO_DO:
            yield from materialisations(below, its_view, replace(done[name], below=report.below), instance)


def versions_below(spec: dg.AssetSpec, report: Report) -> dict[str, str]:
    """Return the tags for an asset's input views that were refreshed in the same step.

    Dagster itself tags the versions that it looked up before the step, and would show the asset as outdated at once.
    """
    versions = {keys.view(each.view): metadata.data_version(each.generation, each.epoch) for each in report.below}
    return {
        tags.get_input_data_version_tag(key): version for key, version in versions.items() if key in _inputs_of(spec)
    }


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
        tags={tags.DATA_VERSION_TAG: str(version)},
    )


def version_tags(version: str, code: str, inputs: Mapping[dg.AssetKey, Input]) -> Mapping[str, str]:
    """Return the tags of a materialisation: its data version, and those of its inputs."""
    found = {
        tags.DATA_VERSION_TAG: version,
        tags.DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
        tags.CODE_VERSION_TAG: code,
    }
    for key, (input_version, number) in inputs.items():
        found[tags.get_input_data_version_tag(key)] = input_version
        found[tags.get_input_event_pointer_tag(key)] = tags.NULL_EVENT_POINTER if number is None else str(number)
    return found


def _input(instance: dg.DagsterInstance, key: dg.AssetKey) -> Input:
    record = last_materialisation(instance, key)
    version = tags.extract_data_version_from_entry(record.event_log_entry) if record else None
    return (version or tags.DEFAULT_DATA_VERSION).value, record.storage_id if record else None
