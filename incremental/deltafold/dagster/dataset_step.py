"""Refresh several datasets in one step of a user's project: the selected ones in order, each with its check.

A dataset is one asset, whatever states it has. All of a step share one Spark. One that fails, or differs from its
query, stops its readers and no others: those are materialised, and then the step fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import dagster as dg

from deltafold.algebra.errors import UsageError
from deltafold.dagster import epochs, metadata
from deltafold.dagster.checks import CHECK, describe_loss, loss_check
from deltafold.dagster.following import of_tables
from deltafold.dagster.steps import RefreshConfig
from deltafold.dagster.task_runner import StepContext, TaskRunner
from deltafold.dagster.translator import DeltafoldTranslator, replace_attributes
from deltafold.pipelines import descriptions
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.declaration.values import share_of
from deltafold.pipelines.tasks import RefreshedView, RefreshTask, VerifyTask

if TYPE_CHECKING:
    from deltafold.dagster.resources import SparkResource

Result = dg.MaterializeResult[Any] | dg.AssetCheckResult


@dataclass(frozen=True)
class Dataset:
    """A pipeline as an asset; sources: the assets of its sources, by name; checked: whether it has `equals_batch`."""

    pipeline: Pipeline
    spec: dg.AssetSpec
    sources: Mapping[str, dg.AssetKey]
    checked: bool

    @property
    def checks(self) -> list[dg.AssetCheckSpec]:
        """The checks that its step does."""
        checks: list[dg.AssetCheckSpec] = []
        if self.checked:
            share = self.pipeline.declaration.check.sample
            text = f"{share} of the keys equal the batch query on the same source versions, duplicates counted."
            checks.append(dg.AssetCheckSpec(CHECK, asset=self.spec.key, blocking=True, description=text))
        return [*checks, *loss_check(self.pipeline, self.spec.key)]


def translate(pipelines: Sequence[Pipeline], translator: DeltafoldTranslator, *, checked: bool) -> list[Dataset]:
    """Return the datasets of pipelines; readers of one refer to the key that its spec has."""
    specs = {pipeline.name: translator.get_asset_spec(pipeline) for pipeline in pipelines}
    changed = {translator.get_asset_key(pipeline): specs[pipeline.name].key for pipeline in pipelines}
    datasets: list[Dataset] = []
    for pipeline in pipelines:
        spec = specs[pipeline.name]
        keys = {source: translator.get_source_key(pipeline, source) for source in pipeline.declaration.sources}
        sources = {source: changed.get(key, key) for source, key in keys.items()}
        described = descriptions.load_description(pipeline)
        shown = metadata.of_columns(described) | metadata.of_lineage(described, sources) if described else {}
        deps = [changed.get(dep.asset_key, dep) for dep in spec.deps]
        spec = replace_attributes(spec, deps=deps, metadata={**shown, **spec.metadata})
        datasets.append(Dataset(pipeline, spec, sources, checked))
    return datasets


def refresh_step(
    name: str,
    datasets: Sequence[Dataset],
    *,
    resource_key: str | None,
    retry_policy: dg.RetryPolicy | None,
    pool: str | None,
    op_tags: Mapping[str, Any] | None,
    below: Sequence[Dataset] = (),
) -> dg.AssetsDefinition:
    """Return the step of datasets, of which each is before its readers; below: datasets of other steps they read."""

    @dg.multi_asset(
        name=name,
        specs=[dataset.spec for dataset in datasets],
        check_specs=[check for dataset in datasets for check in dataset.checks],
        can_subset=True,
        required_resource_keys={resource_key} if resource_key else set(),
        retry_policy=retry_policy,
        pool=pool,
        op_tags=op_tags,
    )
    def refresh(context: dg.AssetExecutionContext, config: RefreshConfig) -> Iterator[Result]:
        runner = find_runner(context, resource_key)
        yield from _Run(context, runner, _with_keys_of(context, datasets), below, rebuild=config.rebuild).results()

    _DATASETS[refresh.node_def] = tuple(datasets)
    return refresh


_DATASETS: WeakKeyDictionary[Any, tuple[Dataset, ...]] = WeakKeyDictionary()
"""The datasets of each step, by the definition of its op."""


def datasets_of(assets: dg.AssetsDefinition) -> tuple[Dataset, ...]:
    """Return the datasets that a step refreshes; raises UsageError for any other assets."""
    found = _DATASETS.get(assets.node_def) if assets.is_executable else None
    if found is None:
        names = ", ".join(sorted(key.to_user_string() for key in assets.keys))
        raise UsageError(f"asset {names}: it is not maintained by Deltafold. Name the Delta table that it writes.")
    return found


def _with_keys_of(context: dg.AssetExecutionContext, datasets: Sequence[Dataset]) -> list[Dataset]:
    """Return the datasets under the keys of the run: `load_assets_from_modules` may have put a prefix before them."""
    keys = context.assets_def.keys_by_output_name
    placed = [keys.get(dataset.spec.key.to_python_identifier(), dataset.spec.key) for dataset in datasets]
    specs = [replace_attributes(each.spec, key=key) for each, key in zip(datasets, placed, strict=True)]
    return [replace(dataset, spec=spec) for dataset, spec in zip(datasets, specs, strict=True)]


class _Run:
    """One run of the step."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        spark: TaskRunner,
        datasets: Sequence[Dataset],
        below: Sequence[Dataset],
        *,
        rebuild: bool,
    ) -> None:
        self._context = context
        self._spark = spark
        self._datasets = datasets
        self._known = {dataset.pipeline.name: dataset for dataset in (*below, *datasets)}
        self._rebuild = rebuild
        self._failures: dict[str, dg.Failure] = {}
        self._stopped: set[str] = set()  # datasets whose readers cannot be refreshed

    def results(self) -> Iterator[Result]:
        """Yield the results of the selected datasets and checks; raise Failure at the end if one failed."""
        checks = {(key.asset_key, key.name) for key in self._context.selected_asset_check_keys}
        for dataset in self._datasets:
            key, name = dataset.spec.key, dataset.pipeline.name
            if below := sorted(self._stopped & {pipeline.name for pipeline in dataset.pipeline.chain}):
                self._context.log.warning(f"{name}: not refreshed, because it reads {', '.join(below)}.")
                self._stopped.add(name)
                continue
            try:
                if key in self._context.selected_asset_keys:
                    yield from self._refresh(dataset, checks)
                if (key, CHECK) in checks:
                    yield self._verify(dataset)
            except dg.Failure as failure:
                self._failures[name] = failure
                self._stopped.add(name)
        if self._failures:
            raise _together(self._failures)

    def _refresh(self, dataset: Dataset, checks: set[tuple[dg.AssetKey, str]]) -> Iterator[Result]:
        done = self._spark.run(self._context, dataset.pipeline, RefreshTask(rebuild=self._rebuild))
        report = done.report
        (self._context.log.warning if report.lost else self._context.log.info)(report.sentence)
        for below in done.below:
            if lower := self._known.get(below.report.view):
                self._context.log_event(_event_below(lower, below))
        versions = {
            self._known[below.view].spec.key: metadata.data_version(below.generation, below.epoch)
            for below in report.below
            if below.view in self._known
        }
        yield dg.MaterializeResult(
            asset_key=dataset.spec.key,
            metadata=shown_metadata(dataset, done),
            data_version=dg.DataVersion(metadata.data_version(report.generation, report.epoch)),
            tags=epochs.input_tags(versions),
        )
        for check in loss_check(dataset.pipeline, dataset.spec.key):
            if (check.asset_key, check.name) in checks:
                yield dg.AssetCheckResult(asset_key=check.asset_key, check_name=check.name, **describe_loss(report))

    def _verify(self, dataset: Dataset) -> dg.AssetCheckResult:
        declared = dataset.pipeline.declaration
        verification = self._spark.run(self._context, dataset.pipeline, VerifyTask(share_of(declared.check.sample)))
        if not verification.ok:
            self._stopped.add(dataset.pipeline.name)
        return dg.AssetCheckResult(
            asset_key=dataset.spec.key,
            check_name=CHECK,
            passed=verification.ok,
            description=verification.sentence,
            metadata=metadata.of_verification(verification, show_rows=declared.show_rows_in_errors),
        )


def shown_metadata(dataset: Dataset, done: RefreshedView) -> metadata.Metadata:
    """Return the metadata of a refreshed dataset."""
    below = {source: lower.name for source, lower in dataset.pipeline.below.items()}
    return {
        **metadata.of_refresh(done.report, below),
        **metadata.view_metadata(done),
        **metadata.of_lineage(done.description, dataset.sources),
        **metadata.state_metadata(done.description),
        **of_tables(done.locations),
    }


def _event_below(dataset: Dataset, done: RefreshedView) -> dg.AssetMaterialization:
    """Return the event of a dataset that a reader's refresh took to another epoch."""
    version = metadata.data_version(done.report.generation, done.report.epoch)
    tags = epochs.version_tags(version, dataset.spec.code_version or "", {})
    shown = shown_metadata(dataset, done)
    return dg.AssetMaterialization(dataset.spec.key, description=done.report.sentence, metadata=shown, tags=tags)


def _together(failures: Mapping[str, dg.Failure]) -> dg.Failure:
    """Return one failure for several datasets; it is tried again if that may help one of them."""
    if len(failures) == 1:
        return next(iter(failures.values()))
    sentences = "\n".join(f"{name}: {failure.description}" for name, failure in failures.items())
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
