"""Define the assets of a folder of pipelines, or of a project: maintained datasets, and the sources that they land.

Nothing else comes along: no job, schedule, sensor, executor or resource. Building the definitions reads texts only, and
imports no Spark.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypedDict, Unpack

import dagster as dg

from deltafold.algebra.errors import DeltafoldWarning, UsageError
from deltafold.dagster.dataset_step import Dataset, Step, refresh_step, register, survey_datasets, translate
from deltafold.dagster.describing import describe_project
from deltafold.dagster.landing_step import landing_step
from deltafold.dagster.project_step import project_step, translate_project
from deltafold.dagster.step_body import Body
from deltafold.dagster.task_runner import CRASHES, RESOURCE_KEY
from deltafold.dagster.translator import DeltafoldTranslator, replace_attributes
from deltafold.pipelines import catalogue, folder_project
from deltafold.pipelines.catalogue import DeclarationError, Pipeline
from deltafold.pipelines.declaration.cron import longest_pause
from deltafold.pipelines.declaration.values import check_share
from deltafold.pipelines.project_files import find_project
from deltafold.pipelines.selection import Nodes, find_pipelines, read_texts

UNDECLARED = "not_declared_well"
"""The group of pipelines whose declarations are invalid."""


def deltafold_assets(
    pipelines: str | Path | None = None,
    *,
    name: str | None = None,
    tables: str | None = None,
    select: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    translator: DeltafoldTranslator | None = None,
    equals_batch: bool | str = True,
    retry_policy: dg.RetryPolicy | None = CRASHES,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    resource_key: str | None = RESOURCE_KEY,
    body: Body | None = None,
) -> dg.AssetsDefinition:
    """Return the datasets of a folder of pipelines, or of a project, as one step; any subset can be materialised.

    Args:
        pipelines: the folder of their folders; by default DELTAFOLD_PIPELINES, else ./pipelines. Or a project: a
            pipeline's folder whose pipeline.yaml has `datasets`, a dbt project or its manifest.json, a
            spark-pipeline.yml or its folder.
        name: of the step, by default that of the folder, marked where a part of it is selected.
        tables: of a dbt project, the folder or URI of the Delta tables that are in no catalog.
        select: which datasets, in dbt's grammar (docs/reference/selections.md): names, `tag:nightly`, `+orders`;
            by default all. One that they read is no asset: it is refreshed with them, in a project read as it is.
        exclude: which of these not.
        translator: names the assets, and maps sources to assets.
        equals_batch: whether each has the blocking check `equals_batch`, of the share that it declares, or of this one,
            such as `1%`.
        retry_policy: of the step; by default a crash is tried twice again.
        pool: of the step.
        op_tags: of the step.
        resource_key: as of `maintained_view`.
        body: of the step, as of `maintained_assets`.

    Raises:
        DeclarationError: for an invalid pipeline that is selected, or a selection that matches nothing.
    """
    folder, translator = _folder(pipelines), translator or DeltafoldTranslator()
    if files := find_project(folder, tables):
        described = describe_project(files)
        assets = translate_project(
            files,
            replace(described, share=_check_share(described.share, asked=equals_batch)),
            *read_texts(select, exclude),
            translator,
            checked=bool(equals_batch),
        )
        translator.check_source_assets(folder, described.sources)
        return project_step(
            name or f"{files.name}__refresh{_mark(select, exclude)}",
            assets,
            resource_key=resource_key,
            retry_policy=retry_policy,
            pool=pool,
            op_tags=op_tags,
            body=body,
        )
    surveyed = _survey(folder)
    loaded = [_with_share(each, asked=equals_batch) for each in _load(folder, surveyed, select, exclude)]
    datasets = translate(loaded, translator, checked=bool(equals_batch))
    translator.check_source_assets(folder, _list_sources(surveyed))
    return refresh_step(
        name or f"{folder.name}__refresh{_mark(select, exclude)}",
        datasets,
        resource_key=resource_key,
        retry_policy=retry_policy,
        pool=pool,
        op_tags=op_tags,
        body=body,
    )


def _mark(select: str | Sequence[str] | None, exclude: str | Sequence[str]) -> str:
    """Return the end of a step's name that tells its selection from others of the same folder; empty without one."""
    chosen, excluded = read_texts(select, exclude)
    texts = (*chosen, "", *excluded)
    return f"_{sha256(repr(texts).encode()).hexdigest()[:6]}" if any(texts) else ""


class StepOptions(TypedDict, total=False):
    """Arguments of `deltafold_assets`."""

    tables: str | None
    select: str | Sequence[str] | None
    exclude: str | Sequence[str]
    translator: DeltafoldTranslator | None
    equals_batch: bool | str
    retry_policy: dg.RetryPolicy | None
    pool: str | None
    op_tags: Mapping[str, Any] | None
    resource_key: str | None


def maintained_assets(
    pipelines: str | Path | None = None, *, name: str | None = None, **options: Unpack[StepOptions]
) -> Callable[[Body], dg.AssetsDefinition]:
    """Decorate the body of a step whose datasets are those of a folder of pipelines, or of a project.

        @maintained_assets("pipelines", select="tag:nightly")
        def nightly(context: dg.AssetExecutionContext, slack: SlackResource):
            yield from refresh_assets(context)
            slack.get_client().chat_postMessage(...)

    The first parameter of the body is `context`; others are resources, by their keys. A `config` is of a class derived
    from RefreshConfig. The lines after the refresh are reached if no dataset failed.

    Args:
        pipelines: as of `deltafold_assets`.
        name: of the step, by default that of the function.
        options: those of `deltafold_assets`.

    Raises:
        DeclarationError: as `deltafold_assets`.
        UsageError: the first parameter is not `context`, or `config` is of another class.
    """
    if callable(pipelines):
        raise UsageError("maintained_assets: it decorates without brackets. Write @maintained_assets(PIPELINES).")

    def decorate(body: Body) -> dg.AssetsDefinition:
        return deltafold_assets(pipelines, name=name or body.__name__, body=body, **options)

    return decorate


def pipeline_steps(
    pipelines: str | Path | None = None,
    *,
    tables: str | None = None,
    translator: DeltafoldTranslator | None = None,
    equals_batch: bool | str = True,
    retry_policy: dg.RetryPolicy | None = CRASHES,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    resource_key: str | None = RESOURCE_KEY,
) -> Sequence[dg.AssetsDefinition]:
    """Return the datasets of a folder as one step each, `<name>__refresh`, by default in pools of their own.

    So two of them can be refreshed at once, and with `in_process_executor` share a Spark nevertheless. A pipeline with
    an invalid declaration, or with an asset that Dagster rejects, becomes an asset that shows the error, and fails with
    it; the others still load. A pipeline with a schedule has a freshness policy: it warns when one refresh is missing,
    and fails when two in a row are.

    A project is one step, that of `deltafold_assets`, whose arguments these are.
    """
    folder, translator = _folder(pipelines), translator or DeltafoldTranslator()
    if files := find_project(folder, tables):
        whole = deltafold_assets(
            folder,
            tables=tables,
            translator=translator,
            equals_batch=equals_batch,
            retry_policy=retry_policy,
            pool=pool or files.name,
            op_tags=op_tags,
            resource_key=resource_key,
        )
        return [whole]
    surveyed = _survey(folder)
    valid = [_with_share(each, asked=equals_batch) for each in surveyed.values() if isinstance(each, Pipeline)]
    translated = survey_datasets(valid, translator, checked=bool(equals_batch))
    translator.check_source_assets(folder, _list_sources(surveyed))
    datasets = {name: _with_freshness(each) for name, each in translated.items() if isinstance(each, Dataset)}

    def project(name: str) -> dg.AssetsDefinition:
        try:
            return deltafold_assets(
                folder / name,
                translator=translator,
                equals_batch=equals_batch,
                retry_policy=retry_policy,
                pool=pool or name,
                op_tags=op_tags,
                resource_key=resource_key,
            )
        except (DeclarationError, dg.DagsterInvalidDefinitionError) as error:
            return _show_error(dg.AssetKey([name]), str(error))

    def step(name: str) -> dg.AssetsDefinition:
        pipeline = surveyed[name]
        if isinstance(pipeline, DeclarationError):
            if folder_project.is_project(folder / name):
                return project(name)
            return _show_error(dg.AssetKey([name]), str(pipeline))
        rejected = translated[name]
        if isinstance(rejected, DeclarationError):
            return _show_error(dg.AssetKey([name]), str(rejected))
        if isinstance(rejected, dg.DagsterInvalidDefinitionError):
            return _show_error(dg.AssetKey([name]), _explain_rejection(pipeline, rejected))
        try:
            return refresh_step(
                f"{name}__refresh",
                [datasets[name]],
                resource_key=resource_key,
                retry_policy=retry_policy,
                pool=pool or name,
                op_tags=op_tags,
                below=[datasets[below.name] for below in pipeline.chain if below.name in datasets],
            )
        except dg.DagsterInvalidDefinitionError as error:  # a name that Dagster reserves, such as `type`
            why = f"{pipeline.folder}: Dagster rejects this name ({error}). Rename the folder."
            return _show_error(dg.AssetKey([name]), why)

    return [step(name) for name in surveyed]


def _with_freshness(dataset: Dataset) -> Dataset:
    """Return a dataset that is expected after every tick of its declared schedule, unless it has a policy."""
    schedule = dataset.pipeline.declaration.schedule
    if schedule is None or dataset.spec.freshness_policy:
        return dataset
    return replace(dataset, spec=replace_attributes(dataset.spec, freshness_policy=freshness_of(schedule)))


def freshness_of(schedule: str) -> dg.FreshnessPolicy:
    """Return the freshness policy of a dataset that is refreshed on a schedule (cron text, in UTC)."""
    pause = longest_pause(schedule)
    return dg.FreshnessPolicy.time_window(fail_window=2 * pause, warn_window=1.25 * pause)


def _explain_rejection(pipeline: Pipeline, error: dg.DagsterInvalidDefinitionError) -> str:
    return f"{pipeline.folder}: Dagster rejects the asset ({error}). Correct it in pipeline.yaml, or in the translator."


def _show_error(key: dg.AssetKey, why: str) -> dg.AssetsDefinition:
    """Return an asset for an invalid pipeline or landing: it shows the error, and fails with it when run."""
    shown = dg.AssetOut(
        key=key,
        group_name=UNDECLARED,
        description=f"Invalid declaration. {why}",
        dagster_type=dg.Nothing,
    )

    # The folder may have any name, but an op may not.
    @dg.multi_asset(name=f"{UNDECLARED}_{sha256(key.to_user_string().encode()).hexdigest()[:8]}", outs={"view": shown})
    def undeclared() -> None:
        raise dg.Failure(description=why, allow_retries=False)

    return register(undeclared, Step((), None, None))


def landing_assets(
    pipelines: str | Path | None = None,
    *,
    select: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    translator: DeltafoldTranslator | None = None,
    retry_policy: dg.RetryPolicy | None = CRASHES,
    backfill_policy: dg.BackfillPolicy | None = None,
    pool: str | None = None,
    resource_key: str | None = RESOURCE_KEY,
    skip_invalid: bool = False,
) -> Sequence[dg.AssetsDefinition]:
    """Return an asset for each source that the pipelines of a folder land, partitioned as they declare.

    Args:
        pipelines: as of `deltafold_assets`, as are the others.
        select, exclude: which pipelines, as of `deltafold_assets`.
        translator: names the assets, and may give a partitioned one other partitions.
        retry_policy: of each step.
        backfill_policy: of partitioned ones; by default a backfill over a range is one run.
        pool: of all their steps; by default each has one of its own.
        resource_key: as of `maintained_view`.
        skip_invalid: leave out pipelines with an invalid declaration, which `pipeline_steps` shows. A source whose
            asset Dagster rejects becomes an asset that shows the error.

    Raises:
        DeclarationError: for an invalid pipeline, unless they are skipped.
    """
    translator = translator or DeltafoldTranslator()
    folder = _folder(pipelines)

    def step(pipeline: Pipeline, source: str) -> dg.AssetsDefinition:
        try:
            return landing_step(
                pipeline,
                source,
                translator.get_landing_spec(pipeline, source),
                retry_policy=retry_policy,
                backfill_policy=backfill_policy,
                pool=pool,
                resource_key=resource_key,
            )
        except dg.DagsterInvalidDefinitionError as error:
            if not skip_invalid:
                raise
            return _show_error(translator.get_source_key(pipeline, source), _explain_rejection(pipeline, error))

    if find_project(folder):
        return []  # its step lands them
    surveyed = _survey(folder)
    translator.check_source_assets(folder, _list_sources(surveyed))
    if skip_invalid:
        surveyed = {name: each for name, each in surveyed.items() if isinstance(each, Pipeline)}
    loaded = _load(folder, surveyed, select, exclude)
    return [step(pipeline, source) for pipeline in loaded for source in pipeline.landed]


def _folder(pipelines: str | Path | None) -> Path:
    return Path(pipelines).absolute() if pipelines is not None else catalogue.pipelines_folder()


def _survey(folder: Path) -> dict[str, Pipeline | DeclarationError]:
    """Return the pipelines of a folder; warns of one without any, and raises DeclarationError where there is none."""
    surveyed = catalogue.survey_pipelines(folder)
    if not surveyed:
        warnings.warn(catalogue.explain_none(folder), DeltafoldWarning, stacklevel=2)
    return surveyed


def _list_sources(surveyed: Mapping[str, Pipeline | DeclarationError]) -> dict[str, None]:
    """Return what the valid pipelines of a folder read, by name."""
    valid = (each for each in surveyed.values() if isinstance(each, Pipeline))
    return dict.fromkeys(source for each in valid for source in each.declaration.sources)


def _load(
    folder: Path,
    surveyed: Mapping[str, Pipeline | DeclarationError],
    select: str | Sequence[str] | None,
    exclude: str | Sequence[str],
) -> list[Pipeline]:
    """Return the selected pipelines of a folder, each before its readers."""
    names = tuple(surveyed)
    texts = read_texts(select, exclude)
    if any(texts):
        names = Nodes.of(find_pipelines(surveyed), dashes="").select(*texts)
    invalid = (folder / name for name in names if isinstance(surveyed[name], DeclarationError))
    if project := next(filter(folder_project.is_project, invalid), None):
        raise DeclarationError(
            f"{project}: it has datasets, so it is a step of its own. Name its folder, or exclude {project.name}."
        )
    chosen = [_valid(surveyed[name]) for name in names]
    ordered = {pipeline.name: pipeline for top in chosen for pipeline in (*top.chain, top)}
    return [pipeline for name, pipeline in ordered.items() if name in names]


def _with_share(pipeline: Pipeline, *, asked: bool | str) -> Pipeline:
    """Return a pipeline whose check compares the share that was asked for, if one was."""
    check = pipeline.declaration.check
    check = check.model_copy(update={"sample": _check_share(check.sample, asked=asked)})
    return replace(pipeline, declaration=pipeline.declaration.model_copy(update={"check": check}))


def _check_share(declared: str, *, asked: bool | str) -> str:
    """Return the share that was asked for, else the declared one; raises DeclarationError for no share."""
    if isinstance(asked, bool):
        return declared
    try:
        return check_share(asked)
    except ValueError as error:
        raise DeclarationError(f"equals_batch: {error}.") from None


def _valid(pipeline: Pipeline | DeclarationError) -> Pipeline:
    if isinstance(pipeline, DeclarationError):
        raise pipeline
    return pipeline
