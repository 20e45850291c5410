"""Refresh several datasets in one step: the selected ones in order, each with its checks.

A dataset is one asset, whatever states it has (D-184). All of a step share one Spark. One that fails, or differs from
its query, stops its readers and no others: those are materialised, and then the step fails. A step that Dagster tries
again leaves out the datasets that an attempt of the same run has materialised, and compares them again.

A refresh is not partitioned: it consumes all landed changes, from the last epoch's versions to the newest ones. It
materialises the dataset also if nothing changed, with that verdict and the same data version, so that freshness finds
it up to date and downstream assets do not count it as new.

    equals_batch    runs the query at the versions of the last epoch, and compares every row, duplicates counted, of a
                    share of the keys (`check: {sample: 1%}`; another share after each epoch). It is blocking.
    sources_kept    warns where a refresh rebuilt the dataset, since a source had lost what the last epoch read; only
                    with `on_lost: rebuild`. It does not block: the rebuilt dataset is right.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import dagster as dg

from deltafold.algebra.errors import UsageError
from deltafold.algebra.results.report import Report
from deltafold.dagster import metadata
from deltafold.dagster.step_body import Body, RefreshConfig, Result, complete_body, record_results
from deltafold.dagster.storage import Folders
from deltafold.dagster.task_runner import StepContext, TaskRunner, failures
from deltafold.dagster.translator import (
    DeltafoldTranslator,
    refuse_other_check,
    refuse_partitions,
    refuse_same_keys,
    replace_attributes,
)
from deltafold.pipelines import descriptions
from deltafold.pipelines.catalogue import DeclarationError, Pipeline
from deltafold.pipelines.declaration.values import share_of
from deltafold.pipelines.described_project import DescribedDataset
from deltafold.pipelines.tasks import RefreshedView, RefreshTask, VerifyTask

if TYPE_CHECKING:
    from deltafold.dagster.project_step import ProjectAssets
    from deltafold.dagster.resources import SparkResource

CHECK = "equals_batch"
LOSS_CHECK = "sources_kept"


@dataclass(frozen=True)
class Dataset:
    """A pipeline as an asset.

    sources: the assets of its sources, by name; landings: the ops that land some of them; checks: those of its step.
    """

    pipeline: Pipeline
    spec: dg.AssetSpec
    sources: Mapping[str, dg.AssetKey]
    landings: Mapping[str, str]
    checks: tuple[dg.AssetCheckSpec, ...]

    @property
    def name(self) -> str:
        """The name of its pipeline."""
        return self.pipeline.name

    @property
    def key(self) -> dg.AssetKey:
        """The key of its asset."""
        return self.spec.key

    @property
    def landed(self) -> Mapping[str, dg.AssetKey]:
        """The assets of the sources that its pipeline lands, by name."""
        return {source: self.sources[source] for source in self.pipeline.landed}

    @property
    def is_checked(self) -> bool:
        """Whether it is compared with its query."""
        return any(check.name == CHECK for check in self.checks)


Results = Callable[[dg.AssetExecutionContext, RefreshConfig], Iterator[Result]]
"""Yields the results of what a run selects of a step."""


@dataclass(frozen=True)
class Step:
    """What automation, and a body, have to know of a step: its datasets or its project, and what refreshes them."""

    datasets: tuple[Dataset, ...]
    resource_key: str | None
    pool: str | None
    project: "ProjectAssets | None" = None
    results: Results = lambda context, config: iter(())


def translate(pipelines: Sequence[Pipeline], translator: DeltafoldTranslator, *, checked: bool) -> list[Dataset]:
    """Return the datasets of pipelines; readers of one refer to the key that its spec has."""
    datasets: list[Dataset] = []
    for dataset in survey_datasets(pipelines, translator, checked=checked).values():
        if isinstance(dataset, Exception):
            raise dataset
        datasets.append(dataset)
    refuse_same_keys({dataset.name: dataset.spec for dataset in datasets})
    return datasets


def survey_datasets(
    pipelines: Sequence[Pipeline], translator: DeltafoldTranslator, *, checked: bool
) -> Mapping[str, Dataset | dg.DagsterInvalidDefinitionError | DeclarationError]:
    """Return the datasets of pipelines by name, as `translate` does; of one whose asset is invalid, the error."""
    specs: dict[str, dg.AssetSpec] = {}
    surveyed: dict[str, Dataset | dg.DagsterInvalidDefinitionError | DeclarationError] = {}
    for pipeline in pipelines:
        try:
            specs[pipeline.name] = refuse_partitions(translator.get_asset_spec(pipeline))
        except (dg.DagsterInvalidDefinitionError, DeclarationError) as error:
            surveyed[pipeline.name] = error
    accepted = [pipeline for pipeline in pipelines if pipeline.name in specs]
    changed = {translator.get_asset_key(pipeline): specs[pipeline.name].key for pipeline in accepted}
    # Those that are read and are not selected have the keys that another selection gives them.
    below = {each.name: each for pipeline in accepted for each in pipeline.chain if each.in_folder}
    changed |= {
        translator.get_asset_key(each): find_key(translator, each) for name, each in below.items() if name not in specs
    }
    for pipeline in accepted:
        spec = specs[pipeline.name]
        keys = {source: translator.get_source_key(pipeline, source) for source in pipeline.declaration.sources}
        sources = {source: changed.get(key, key) for source, key in keys.items()}
        described = descriptions.load_description(pipeline)
        shown = metadata.of_columns(described) | metadata.of_lineage(described, sources) if described else {}
        deps = [
            dg.AssetDep(changed[dep.asset_key], partition_mapping=dep.partition_mapping)
            if dep.asset_key in changed
            else dep
            for dep in spec.deps
        ]
        spec = replace_attributes(spec, deps=deps, metadata={**shown, **spec.metadata})
        offered = _list_checks(pipeline, spec.key, checked=checked)
        checks = [refuse_other_check(check, translator.get_asset_check_spec(pipeline, check)) for check in offered]
        surveyed[pipeline.name] = Dataset(
            pipeline,
            spec,
            sources,
            landings={source: landing_op(sources[source]) for source in pipeline.landed},
            checks=tuple(check for check in checks if check),
        )
    return surveyed


def find_key(translator: DeltafoldTranslator, dataset: Pipeline | DescribedDataset) -> dg.AssetKey:
    """Return the key of a dataset that is not of this step, as its own step has it."""
    try:
        return translator.get_asset_spec(dataset).key
    except (dg.DagsterInvalidDefinitionError, DeclarationError):  # its own step shows the error
        return translator.get_asset_key(dataset)


def landing_op(key: dg.AssetKey) -> str:
    """Return the name of the step that lands an asset, by the key that it is defined with; also for run config."""
    return key.to_python_identifier()


def _list_checks(pipeline: Pipeline, key: dg.AssetKey, *, checked: bool) -> Iterator[dg.AssetCheckSpec]:
    """Yield the checks of a dataset; checked: with `equals_batch`."""
    if checked:
        yield equals_batch(key, pipeline.declaration.check.sample)
    if pipeline.declaration.on_lost == "rebuild":
        text = "No source had lost what the last epoch read; otherwise the view was rebuilt, as `on_lost` asks for."
        yield dg.AssetCheckSpec(LOSS_CHECK, asset=key, description=text)


def equals_batch(key: dg.AssetKey, share: str) -> dg.AssetCheckSpec:
    """Return the check that compares a share of an asset's keys with its query."""
    text = f"{share} of the keys equal the batch query on the same source versions, duplicates counted."
    return dg.AssetCheckSpec(CHECK, asset=key, blocking=True, description=text)


def refresh_step(
    name: str,
    datasets: Sequence[Dataset],
    *,
    resource_key: str | None,
    retry_policy: dg.RetryPolicy | None,
    pool: str | None,
    op_tags: Mapping[str, Any] | None,
    body: Body | None = None,
    below: Sequence[Dataset] = (),
) -> dg.AssetsDefinition:
    """Return the step of datasets, of which each is before its readers; below: datasets of other steps they read."""

    def results(context: dg.AssetExecutionContext, config: RefreshConfig) -> Iterator[Result]:
        runner = find_runner(context, resource_key)
        current = [_rekey(dataset, context.assets_def) for dataset in datasets]
        located = find_steps(context)
        lower = [*_find_unselected(current, located), *_find_below(context, datasets[0], below, located)]
        yield from _Run(context, runner, current, lower, Folders(located), config).results()

    return define_step(
        name,
        Step(tuple(datasets), resource_key, pool, results=results),
        [dataset.spec for dataset in datasets],
        [check for dataset in datasets for check in dataset.checks],
        retry_policy=retry_policy,
        op_tags=op_tags,
        body=body,
    )


def define_step(
    name: str,
    step: Step,
    specs: Sequence[dg.AssetSpec],
    checks: Sequence[dg.AssetCheckSpec],
    *,
    retry_policy: dg.RetryPolicy | None,
    op_tags: Mapping[str, Any] | None,
    body: Body | None,
) -> dg.AssetsDefinition:
    """Return a step of assets and checks, of which any subset can be selected; body: by default `refresh_assets`."""
    define = dg.multi_asset(
        name=name,
        specs=specs,
        check_specs=checks,
        can_subset=True,
        retry_policy=retry_policy,
        pool=step.pool,
        op_tags=op_tags,
    )
    return register(define(complete_body(name, body or refresh_assets, step.resource_key)), step)


def refresh_assets(context: dg.AssetExecutionContext) -> Iterator[Result]:
    """Refresh what a run selects of a step, in the body of that step, and return the results for it to yield.

    The results are a MaterializeResult for each asset and an AssetCheckResult for each check, as they are made. The
    config of the run applies: `rebuild` and `sample`.

    Raises:
        UsageError: the step is not Deltafold's.
        dg.Failure: after the last result, if a dataset failed.
    """
    if context.assets_def.node_def not in _STEPS:
        name = context.assets_def.node_def.name
        raise UsageError(f"step {name}: it maintains no dataset. Decorate its body with `maintained_assets`.")
    asked = context.op_execution_context.op_config
    config = RefreshConfig(**{name: asked[name] for name in RefreshConfig.model_fields if name in asked})
    try:
        share_of(config.sample or "100%")
    except ValueError as error:
        raise dg.Failure(f"config `sample`: {error}.", allow_retries=False) from None
    return record_results(context, step_of(context.assets_def).results(context, config))


_STEPS: WeakKeyDictionary[Any, Step] = WeakKeyDictionary()
"""The steps, by the definitions of their ops."""


def register(assets: dg.AssetsDefinition, step: Step) -> dg.AssetsDefinition:
    """Return the assets, which `step_of` finds from now on."""
    _STEPS[assets.node_def] = step
    return assets


def step_of(assets: dg.AssetsDefinition) -> Step:
    """Return the step of maintained assets, under the keys that they have now; raises UsageError for any others."""
    step = _STEPS.get(assets.node_def) if assets.is_executable else None
    if step is None:
        names = ", ".join(sorted(key.to_user_string() for key in assets.keys))
        raise UsageError(f"asset {names}: it is not maintained by Deltafold. Name the Delta table that it writes.")
    return replace(
        step,
        datasets=tuple(_rekey(dataset, assets) for dataset in step.datasets),
        project=step.project and step.project.rekey(assets),
    )


def _rekey(dataset: Dataset, assets: dg.AssetsDefinition) -> Dataset:
    """Return a dataset under the keys of its assets."""
    keys = current_keys([dataset.spec], assets)
    spec = assets.specs_by_key[keys[dataset.key]]
    return replace(dataset, spec=spec, sources={name: keys.get(key, key) for name, key in dataset.sources.items()})


def current_keys(specs: Sequence[dg.AssetSpec], assets: dg.AssetsDefinition) -> Mapping[dg.AssetKey, dg.AssetKey]:
    """Return the keys that specs and dependencies have now: `load_assets_from_modules` may have put a prefix before."""
    keys = dict[dg.AssetKey, dg.AssetKey]()
    for spec in specs:
        current = assets.specs_by_key[assets.node_keys_by_output_name[spec.key.to_python_identifier()]]
        # Dagster replaces dependencies in place.
        pairs = [(old.asset_key, new.asset_key) for old, new in zip(spec.deps, current.deps, strict=False)]
        keys |= {old: new for old, new in pairs if new.path[-len(old.path) :] == old.path}
        keys[spec.key] = current.key
    return keys


def _find_below(
    context: dg.AssetExecutionContext, own: Dataset, below: Sequence[Dataset], located: Sequence[Step]
) -> list[Dataset]:
    """Return datasets of other steps under the keys that they have in the code location of a run.

    own: of this step; located: the steps of the code location.
    """
    current = {id(dataset.pipeline): dataset for step in located for dataset in step.datasets}
    keys = current_keys([own.spec], context.assets_def)
    added = keys[own.key].path[: -len(own.key.path)]

    def guess(dataset: Dataset) -> Dataset:
        """Return a dataset under the key that this step depends on, or with the prefix of this step."""
        key = keys.get(dataset.key, dg.AssetKey([*added, *dataset.key.path]))
        return replace(dataset, spec=replace_attributes(dataset.spec, key=key))

    return [current.get(id(dataset.pipeline)) or guess(dataset) for dataset in below]


def _find_unselected(own: Sequence[Dataset], located: Sequence[Step]) -> list[Dataset]:
    """Return the datasets of other selections of a folder that a step's datasets read, and so refresh."""
    read = {(each.folder, each.name) for dataset in own for each in dataset.pipeline.chain if each.in_folder}
    read -= {(dataset.pipeline.folder, dataset.name) for dataset in own}
    others = (dataset for step in located for dataset in step.datasets)
    return [each for each in others if (each.pipeline.folder, each.name) in read]


def find_steps(context: dg.AssetExecutionContext) -> list[Step]:
    """Return the steps of the code location; of a job that is executed in the process that defines it, its own."""
    assets: Iterable[dg.AssetsDefinition]
    try:
        assets = context.repository_def.assets_defs_by_key.values()
    except Exception:  # that there is no repository: the error has no public name
        assets = context.op_execution_context.job_def.asset_layer.asset_graph.assets_defs
    unique = {id(each): each for each in assets if each.is_executable and each.node_def in _STEPS}
    return [step_of(each) for each in unique.values()]


def refuse_invalid(spec: dg.AssetSpec) -> None:
    """Raise Failure for an asset that was given partitions after its step was made, such as by `post_processing`."""
    try:
        refuse_partitions(spec)
    except DeclarationError as error:
        raise dg.Failure(str(error), allow_retries=False) from None


def find_done(context: dg.AssetExecutionContext) -> set[tuple[dg.AssetKey, str]]:
    """Return the selected assets that earlier attempts of this step materialised in this run, with data versions."""
    attempt = context.op_execution_context
    if attempt.retry_number == 0:
        return set()
    done = set[tuple[dg.AssetKey, str]]()
    for key in context.selected_asset_keys:
        for record in context.instance.fetch_materializations(key, limit=1).records:
            if record.run_id == attempt.run_id and (made := record.asset_materialization) is not None:
                done.add((key, (made.tags or {}).get(metadata.DATA_VERSION, "")))
    return done


class _Run:
    """One run of the step."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        spark: TaskRunner,
        datasets: Sequence[Dataset],
        below: Sequence[Dataset],
        folders: Folders,
        config: RefreshConfig,
    ) -> None:
        self._context = context
        self._spark = spark
        self._datasets = datasets
        self._known = {dataset.name: dataset for dataset in (*below, *datasets)}
        self._folders = folders
        self._config = config
        self._failures: dict[str, dg.Failure] = {}
        self._stopped: set[str] = set()  # datasets whose readers cannot be refreshed

    def results(self) -> Iterator[Result]:
        """Yield the results of the selected datasets and checks; raise Failure at the end if one failed."""
        asked = self._context.selected_asset_keys - {key for key, _ in find_done(self._context)}
        checks = {(key.asset_key, key.name) for key in self._context.selected_asset_check_keys}
        for dataset in self._datasets:
            key, name = dataset.key, dataset.name
            if below := sorted(self._stopped & {pipeline.name for pipeline in dataset.pipeline.chain}):
                self._context.log.warning(f"{name}: not refreshed, because it reads {', '.join(below)}.")
                self._stopped.add(name)
                continue
            try:
                if key in asked or (key, CHECK) in checks:
                    refuse_invalid(dataset.spec)
                    self._check_folders(dataset)
                if key in asked:
                    yield from self._refresh(dataset, checks)
                if (key, CHECK) in checks:
                    yield self._verify(dataset)
            except dg.Failure as failure:
                self._failures[name] = failure
                self._stopped.add(name)
        if self._failures:
            raise together(self._failures)

    def _check_folders(self, dataset: Dataset) -> None:
        """Raise Failure if another dataset has the folder of this one, or of one below it."""
        for pipeline in (*dataset.pipeline.chain, dataset.pipeline):
            known = self._known.get(pipeline.name)
            key = known.key if known else dg.AssetKey([pipeline.name])
            if fault := self._folders.find_fault(pipeline, key):
                raise dg.Failure(fault, allow_retries=False)

    def _refresh(self, dataset: Dataset, checks: set[tuple[dg.AssetKey, str]]) -> Iterator[Result]:
        done = self._spark.run(self._context, dataset.pipeline, RefreshTask(rebuild=self._config.rebuild))
        report = done.report
        (self._context.log.warning if report.lost else self._context.log.info)(report.sentence)
        self._save_descriptions(dataset.pipeline, done)
        for refreshed in done.below:
            if below := self._known.get(refreshed.report.view):
                self._report_below(below, refreshed)
        # Dagster itself tags the versions that it looked up before the step, and would show the asset as outdated.
        versions = {
            self._known[below.view].key: metadata.data_version(below.generation, below.epoch)
            for below in report.below
            if below.view in self._known
        }
        yield dg.MaterializeResult(
            asset_key=dataset.key,
            metadata=shown_metadata(dataset, done),
            data_version=dg.DataVersion(metadata.data_version(report.generation, report.epoch)),
            tags=metadata.input_tags(versions),
        )
        if (dataset.key, LOSS_CHECK) in checks:
            yield dg.AssetCheckResult(asset_key=dataset.key, check_name=LOSS_CHECK, **describe_loss(report))

    def _save_descriptions(self, pipeline: Pipeline, done: RefreshedView) -> None:
        """Store the descriptions of plans on this machine; another one may have refreshed the datasets."""
        chain = {each.name: each for each in (*pipeline.chain, pipeline)}
        for refreshed in (*done.below, done):
            of_chain = chain[refreshed.report.view]
            if of_chain.in_folder:
                descriptions.save_description(of_chain, refreshed.description, self._context.log.info)

    def _report_below(self, dataset: Dataset, done: RefreshedView) -> None:
        """Materialise a dataset that a reader's refresh took to another epoch, and warn if it was rebuilt."""
        self._context.log_event(materialisation(dataset, done, {}))
        for warning in loss_events(dataset, done.report):
            self._context.instance.report_runless_asset_event(warning)

    def _verify(self, dataset: Dataset) -> dg.AssetCheckResult:
        declared = dataset.pipeline.declaration
        with failures(dataset.pipeline):
            share = share_of(self._config.sample or declared.check.sample)
        verification = self._spark.run(self._context, dataset.pipeline, VerifyTask(share))
        if not verification.ok:
            self._stopped.add(dataset.name)
        return dg.AssetCheckResult(
            asset_key=dataset.key,
            check_name=CHECK,
            passed=verification.ok,
            description=verification.sentence,
            metadata=metadata.of_verification(verification, show_rows=declared.show_rows_in_errors),
        )


def shown_metadata(dataset: Dataset, done: RefreshedView) -> metadata.Metadata:
    """Return the metadata of a refreshed dataset."""
    below = {source: lower.name for source, lower in dataset.pipeline.below.items()}
    return {
        **metadata.of_lineage(done.description, dataset.sources),
        **metadata.of_refresh(done.report, below),
        **metadata.view_metadata(done),
        **metadata.state_metadata(done.description),
        **metadata.of_locations(done.locations),
    }


def materialisation(
    dataset: Dataset,
    done: RefreshedView,
    inputs: Mapping[dg.AssetKey, metadata.Input],
    more: metadata.Metadata | None = None,
) -> dg.AssetMaterialization:
    """Return the event of a dataset that no step of its own has refreshed, with the tags that a step gives.

    Args:
        dataset: the dataset.
        done: its view after the epoch.
        inputs: the versions of its sources that Dagster knows.
        more: metadata besides, or instead of, the report's.
    """
    version = metadata.data_version(done.report.generation, done.report.epoch)
    return dg.AssetMaterialization(
        dataset.key,
        description=done.report.sentence,
        metadata={**shown_metadata(dataset, done), **(more or {})},
        tags=metadata.version_tags(version, dataset.spec.code_version or "", inputs),
    )


def describe_loss(report: Report) -> Mapping[str, Any]:
    """Return the result of the check of losses, as arguments of what Dagster makes of it."""
    return {
        "passed": not report.lost,
        "severity": dg.AssetCheckSeverity.WARN,
        "description": f"The view was rebuilt. {report.lost}" if report.lost else "No source was lost.",
        "metadata": {"epoch": report.epoch, "generation": report.generation},
    }


def loss_events(dataset: Dataset, report: Report) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the result of the check of losses, if the dataset has it, as an event of no step of the dataset."""
    for check in dataset.checks:
        if check.name == LOSS_CHECK:
            yield dg.AssetCheckEvaluation(asset_key=dataset.key, check_name=LOSS_CHECK, **describe_loss(report))


def together(failures: Mapping[str, dg.Failure]) -> dg.Failure:
    """Return one failure for several datasets; it is tried again if that may help one of them."""
    texts = {name: str(failure.description) for name, failure in failures.items()}
    sentences = "\n".join(
        text if text.startswith((f"{name}:", f"view {name}:")) else f"{name}: {text}" for name, text in texts.items()
    )
    if len(failures) == 1:
        [failure] = failures.values()
        return dg.Failure(sentences, metadata=failure.metadata, allow_retries=failure.allow_retries)
    again = any(failure.allow_retries for failure in failures.values())
    return dg.Failure(f"{len(failures)} datasets failed.\n{sentences}", allow_retries=again)


def find_runner(context: StepContext, resource_key: str | None) -> TaskRunner:
    """Return what does the tasks of a step: its resource, or Spark in its process, by the session of the resource."""
    if resource_key is None:
        return _own_spark()
    resource: Any = getattr(context.resources, resource_key)
    if callable(getattr(resource, "run", None)):
        return cast(TaskRunner, resource)
    from deltafold.dagster.resources import SessionSpark

    return SessionSpark(getattr(resource, "spark_session", resource))


@cache
def _own_spark() -> "SparkResource":
    """Return the Spark of a process whose steps name no resource."""
    from deltafold.dagster.resources import SparkResource

    return SparkResource()
