"""Build Dagster's definitions from the declared pipelines and the descriptions of their compiled plans.

Each pipeline becomes a landing asset for each Files source and each stream, an external asset for each Delta source,
one refresh step that materialises its state tables and its view, a blocking check, jobs, sensors, and a schedule if one
is declared. A pipeline with an invalid declaration becomes an asset that shows the error, so that the others
still load.

Loading reads text only: no JVM is started, no query analysed. A run loads the definitions again in its own process, on
another machine where runs are launched elsewhere, and must see the graph that it was launched from, also if another
description has been written since, or none is there. So the descriptions are the state of a component of Dagster: they
are read once, when the code location is loaded, and Dagster hands them to each run.
"""

import json
import os
import warnings
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs

from deltafold.algebra.results.report import Description
from deltafold.dagster import automation, checks, keys, steps
from deltafold.dagster.resources import SUBMIT_VARIABLE, SparkResource, SubmittedSpark
from deltafold.dagster.task_runner import TaskRunner
from deltafold.pipelines import catalogue, descriptions
from deltafold.pipelines.catalogue import DeclarationError, Pipeline

UNDECLARED = "not_declared_well"


def load_definitions(spark: TaskRunner | None = None) -> dg.Definitions:
    """Return the definitions of the pipelines that are declared in DELTAFOLD_PIPELINES, else in ./pipelines.

    Args:
        spark: the resource of every step; by default Spark runs in the process of a run, or, if DELTAFOLD_SUBMIT is
            set, in one that this command starts for each step.
    """
    with warnings.catch_warnings():  # parts of Dagster that may change in a later release
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.build_defs_for_component(_DeclaredPipelines(spark or _default_spark()))


def _default_spark() -> TaskRunner:
    command = os.environ.get(SUBMIT_VARIABLE, "").strip()
    return SubmittedSpark(command=command) if command else SparkResource()


class _DeclaredPipelines(dg.StateBackedComponent):
    """The declared pipelines; their state is the descriptions of their plans, as of the load of the code location."""

    def __init__(self, spark: TaskRunner) -> None:
        self._spark = spark

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Tell Dagster to read the state when the code location is loaded, and only then."""
        return DefsStateConfig.from_args(DefsStateConfigArgs.legacy_code_server_snapshots(), "deltafold")

    def write_state_to_path(self, state_path: Path) -> None:
        """Write the descriptions that this machine has."""
        texts = {name: description.to_json() for name, description in _read_descriptions().items()}
        state_path.write_text(json.dumps(texts))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of all pipelines."""
        try:
            return super().build_defs(context)
        except KeyError:
            # No state is handed on: Python has imported the code outside of a code location, as a test does, or the
            # run was launched by a release of Deltafold that had none.
            return build(catalogue.survey_pipelines(), _read_descriptions(), self._spark)

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """Return the definitions of all pipelines, with the descriptions of the state."""
        texts: dict[str, str] = json.loads(state_path.read_text()) if state_path else {}
        described = {name: Description.from_json(text) for name, text in texts.items()}
        return build(catalogue.survey_pipelines(), described, self._spark)


def _read_descriptions() -> dict[str, Description]:
    """Return the descriptions that this machine has, by pipeline."""
    read = {
        name: descriptions.load_description(pipeline)
        for name, pipeline in catalogue.survey_pipelines().items()
        if isinstance(pipeline, Pipeline)
    }
    return {name: description for name, description in read.items() if description}


def build(
    declared: Mapping[str, Pipeline | DeclarationError], described: Mapping[str, Description], spark: TaskRunner
) -> dg.Definitions:
    """Return the definitions of all pipelines.

    Args:
        declared: the pipelines by name; for an invalid one its error.
        described: the descriptions of compiled plans by pipeline name; any may be missing.
        spark: the resource of every step.
    """
    parts = [_part(name, entry, described.get(name)) for name, entry in declared.items()]
    shared = dg.Definitions(
        resources={"spark": spark},
        # One process, and so one Spark, for all the steps of a run.
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(*parts, shared)


def of_pipeline(pipeline: Pipeline, described: Description | None) -> dg.Definitions:
    """Return the definitions of one pipeline, without the resource that its steps need.

    Args:
        pipeline: the declared pipeline.
        described: the description of its compiled plan, if there is one.
    """
    refresh = steps.refresh_assets(pipeline, described)
    refreshed = sorted(refresh.keys)
    sensors = [automation.follow_sensor(pipeline)]
    if pipeline.folders:
        sensors.append(automation.folder_sensor(pipeline, refreshed))
    if automation.watched_tables(pipeline):
        sensors.append(automation.table_sensor(pipeline))
    landings = [steps.landing_asset(pipeline, source) for source in pipeline.landed]
    return dg.Definitions(
        assets=[*landings, *_external(pipeline), refresh],
        asset_checks=[checks.equality_check(pipeline)],
        jobs=[*automation.jobs_of(pipeline), steps.upkeep_job(pipeline)],
        schedules=automation.schedules_of(pipeline, refreshed),
        sensors=sensors,
    )


def _part(name: str, entry: Pipeline | DeclarationError, described: Description | None) -> dg.Definitions:
    if isinstance(entry, DeclarationError):
        return _show_error(name, str(entry))
    try:
        return of_pipeline(entry, described)
    except dg.DagsterInvalidDefinitionError as error:  # a name that Dagster reserves, such as `type`
        return _show_error(name, f"{entry.folder}: Dagster rejects this name ({error}). Rename the folder.")


def _external(pipeline: Pipeline) -> list[dg.AssetSpec]:
    return [
        dg.AssetSpec(
            keys.external(pipeline.name, name),
            group_name=pipeline.name,
            description="An external Delta table" + (", and never changes." if source.invariant else "."),
            kinds={"deltalake"},
            metadata={"dagster/uri": source.delta} if source.delta else {"dagster/table_name": source.table},
        )
        for name, source in pipeline.declaration.sources.items()
        if source.delta or source.table
    ]


def _show_error(name: str, why: str) -> dg.Definitions:
    """Return an asset for an invalid pipeline: it shows the error, and fails with it when run."""

    shown = dg.AssetOut(
        key=keys.view(name),
        group_name=UNDECLARED,
        description=f"Invalid declaration. {why}",
        dagster_type=dg.Nothing,
    )

    # The folder may have any name, but an op may not.
    @dg.multi_asset(name=f"{UNDECLARED}_{sha256(name.encode()).hexdigest()[:8]}", outs={"view": shown})
    def undeclared() -> None:
        raise dg.Failure(description=why, allow_retries=False)

    return dg.Definitions(assets=[undeclared])
