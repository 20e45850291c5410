"""Build Dagster's definitions from the declared pipelines and the known descriptions of their plans.

Each pipeline becomes a landing asset for each Files source and each stream, an external asset for each Delta source,
one refresh step that materialises its state tables and its view, a blocking check, jobs, sensors, and a schedule if one
is declared. A pipeline with an invalid declaration becomes an asset that shows the error, so that the others
still load.

Loading reads text only: no JVM is started, no query analysed. A run loads the definitions again in its own process, and
must see the graph that it was launched from even if a description was written in between. So the descriptions that were
read when the code location was loaded are passed, in a variable, to the processes of its runs. (On another machine
there are no descriptions but those that it wrote itself.)
"""

import base64
import json
import os
import warnings
import zlib
from collections.abc import Mapping
from hashlib import sha256

import dagster as dg

from deltafold.algebra.results.report import Description
from deltafold.dagster import jobs, keys
from deltafold.dagster.automation import schedules, sensors
from deltafold.dagster.external import SUBMIT_VARIABLE, SubmittedSpark
from deltafold.dagster.resources import SparkResource, TaskRunner
from deltafold.dagster.steps import checks, landing, refreshing, upkeep
from deltafold.pipelines import catalogue, descriptions
from deltafold.pipelines.catalogue import DeclarationError, Pipeline

DESCRIPTIONS = "DELTAFOLD_DESCRIPTIONS"
LARGEST_VARIABLE = 100_000  # bytes; Linux allows 131,072
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
        return _load(spark or _default_spark())


def _default_spark() -> TaskRunner:
    command = os.environ.get(SUBMIT_VARIABLE, "").strip()
    return SubmittedSpark(command=command) if command else SparkResource()


def _load(spark: TaskRunner) -> dg.Definitions:
    found = catalogue.survey_pipelines()
    text = _passed_on()
    if text is None:
        loaded = {name: descriptions.load_description(one) for name, one in found.items() if isinstance(one, Pipeline)}
        text = json.dumps({name: description.to_json() for name, description in loaded.items() if description})
    _pass_on(text)
    described = {name: Description.from_json(one) for name, one in json.loads(text).items()}
    return build(found, described, spark)


def _passed_on() -> str | None:
    """Return the descriptions that the process which started this one was loaded with; None if it passed on none."""
    process, _, packed = os.environ.get(DESCRIPTIONS, "").partition(" ")
    return zlib.decompress(base64.b64decode(packed)).decode() if process == str(os.getppid()) else None


def _pass_on(text: str) -> None:
    """Hand descriptions to the processes that this one starts for runs; many more than fit are read again there."""
    packed = f"{os.getpid()} {base64.b64encode(zlib.compress(text.encode())).decode()}"
    os.environ[DESCRIPTIONS] = packed if len(packed) <= LARGEST_VARIABLE else ""


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
    refresh = refreshing.refresh_assets(pipeline, described)
    refreshed = sorted(refresh.keys)
    declared = (schedules.schedule_of(pipeline, refreshed), checks.check_schedule(pipeline))
    watching = [sensors.follow_sensor(pipeline)]
    if pipeline.folders:
        watching.append(sensors.folder_sensor(pipeline, refreshed))
    if sensors.watched_tables(pipeline):
        watching.append(sensors.table_sensor(pipeline))
    return dg.Definitions(
        assets=[
            *(landing.landing_asset(pipeline, source) for source in pipeline.landed),
            *_external(pipeline),
            refresh,
        ],
        asset_checks=[checks.equality_check(pipeline)],
        jobs=[*jobs.jobs_of(pipeline), upkeep.upkeep_job(pipeline), checks.check_job(pipeline)],
        schedules=[upkeep.upkeep_schedule(pipeline), *(each for each in declared if each)],
        sensors=watching,
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
