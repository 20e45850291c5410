"""Refresh the datasets of a project in one step: a pipeline.yaml with `datasets`, a dbt or a Spark project.

Each dataset is an asset, and so is each source whose input files the project lands. A run does what `deltafold run`
does with what is selected: it lands, refreshes all to one version of each source, side by side where they do not depend
on each other, and then compares those whose check is selected with their queries. A selected dataset reads others as
they are. One that fails stops its readers and no others.

A step that Dagster tries again refreshes all that is selected again, so that it is at one version of each source
(D-208); an asset that is as an earlier attempt has materialised it is not materialised twice.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from deltafold.dagster import metadata
from deltafold.dagster.dataset_step import (
    CHECK,
    Step,
    current_keys,
    define_step,
    equals_batch,
    find_done,
    find_key,
    find_runner,
    find_steps,
    refuse_invalid,
    together,
)
from deltafold.dagster.step_body import Body, RefreshConfig, Result
from deltafold.dagster.storage import Folders
from deltafold.dagster.task_runner import failure_of
from deltafold.dagster.translator import (
    DeltafoldTranslator,
    refuse_other_check,
    refuse_partitions,
    refuse_same_keys,
    replace_attributes,
)
from deltafold.pipelines.declaration.values import share_of
from deltafold.pipelines.described_project import DescribedDataset, DescribedTest, ProjectDescription
from deltafold.pipelines.project_files import ProjectFiles
from deltafold.pipelines.project_tasks import ProjectResult, ProjectTask, TestResult, WrittenTable
from deltafold.pipelines.selection import Nodes
from deltafold.pipelines.tasks import RefreshedView


@dataclass(frozen=True, kw_only=True)
class ProjectAssets:
    """A project as assets.

    datasets: by relation, each after those that it reads; landings: of sources that it lands, by name; keys: of all
    sources and datasets.
    """

    files: ProjectFiles
    project: ProjectDescription
    datasets: Mapping[str, dg.AssetSpec]
    landings: Mapping[str, dg.AssetSpec]
    keys: Mapping[str, dg.AssetKey]
    checks: tuple[dg.AssetCheckSpec, ...]

    def rekey(self, assets: dg.AssetsDefinition) -> "ProjectAssets":
        """Return the project with the keys that its sources and datasets have in the assets now."""
        renamed = current_keys([*self.landings.values(), *self.datasets.values()], assets)
        return replace(self, keys={name: renamed.get(key, key) for name, key in self.keys.items()})


def translate_project(
    files: ProjectFiles,
    project: ProjectDescription,
    select: Sequence[str],
    exclude: Sequence[str],
    translator: DeltafoldTranslator,
    *,
    checked: bool,
) -> ProjectAssets:
    """Return the assets of a project; checked: with `equals_batch`. Raises DeclarationError for a wrong selection."""
    datasets, left_out = project.datasets, set[str]()
    if select or exclude:
        nodes = Nodes.of(project.selectable, dashes="")
        chosen, left_out = nodes.select(select, exclude), nodes.find_excluded(exclude)
        datasets = [each for each in datasets if each.relation in chosen]
    specs = {each.relation: refuse_partitions(translator.get_asset_spec(each)) for each in datasets}
    read = {name for each in datasets for name in each.reads}
    # The text of a query may not show all that it reads, so without a selection everything is landed.
    landed = read if select or exclude else project.sources
    landings = {
        name: refuse_partitions(translator.get_project_landing_spec(project.name, source))
        for name, source in project.sources.items()
        if source.lands and name in landed
    }
    keys = {name: translator.get_project_source_key(project.name, source) for name, source in project.sources.items()}
    others = (each for each in project.datasets if each.relation not in specs)
    keys |= {each.relation: find_key(translator, each) for each in others}
    refuse_same_keys(landings | specs)
    keys |= {name: spec.key for name, spec in (landings | specs).items()}

    def complete(dataset: DescribedDataset) -> dg.AssetSpec:
        spec = specs[dataset.relation]
        deps = {
            keys[name]: dg.AssetDep(keys[name], partition_mapping=translator.get_partition_mapping(dataset, name))
            for name in dataset.reads
        }
        deps |= {dep.asset_key: dep for dep in spec.deps}
        return replace_attributes(spec, deps=[deps[key] for key in sorted(deps)])

    completed = {each.relation: complete(each) for each in datasets}
    checks = list[dg.AssetCheckSpec | None]()
    for dataset in datasets:
        if checked and dataset.is_view:
            offered = equals_batch(specs[dataset.relation].key, project.share)
            checks.append(refuse_other_check(offered, translator.get_asset_check_spec(dataset, offered)))
        for test in (test for test in dataset.tests if test.id not in left_out):
            name, text = check_name(test), test.description or None
            offered = dg.AssetCheckSpec(name, asset=specs[dataset.relation].key, description=text)
            checks.append(refuse_other_check(offered, translator.get_asset_check_spec(dataset, offered)))
    kept = tuple(check for check in checks if check)
    return ProjectAssets(files=files, project=project, datasets=completed, landings=landings, keys=keys, checks=kept)


def check_name(test: DescribedTest) -> str:
    """Return the name of the check that a test is: its own, with the characters that Dagster allows."""
    return re.sub(r"\W", "_", test.name, flags=re.ASCII)


def project_step(
    name: str,
    assets: ProjectAssets,
    *,
    resource_key: str | None,
    retry_policy: dg.RetryPolicy | None,
    pool: str | None,
    op_tags: Mapping[str, Any] | None,
    body: Body | None = None,
) -> dg.AssetsDefinition:
    """Return the step of a project's assets."""
    return define_step(
        name,
        Step((), resource_key, pool, assets, lambda context, config: _run(context, assets, resource_key, config)),
        [*assets.landings.values(), *assets.datasets.values()],
        assets.checks,
        retry_policy=retry_policy,
        op_tags=op_tags,
        body=body,
    )


def _run(
    context: dg.AssetExecutionContext, assets: ProjectAssets, resource_key: str | None, config: RefreshConfig
) -> Iterator[Result]:
    """Yield the results of what is selected; raises Failure at the end if one failed."""
    keys = assets.rekey(context.assets_def).keys
    first = next((keys[relation] for relation in assets.datasets), None)
    if first and (fault := Folders(find_steps(context)).find_fault(assets.files, first)):
        raise dg.Failure(fault, allow_retries=False)
    asked = context.selected_asset_keys
    for key in asked:
        refuse_invalid(context.assets_def.specs_by_key[key])
    checks = {key.asset_key for key in context.selected_asset_check_keys if key.name == CHECK}
    asked_checks = {(key.asset_key, key.name) for key in context.selected_asset_check_keys}
    tested = {
        each.relation: tuple(test for test in each.tests if (keys[each.relation], check_name(test)) in asked_checks)
        for each in assets.project.datasets
    }
    task = ProjectTask(
        sources=tuple(name for name in assets.landings if keys[name] in asked),
        datasets=tuple(relation for relation in assets.datasets if keys[relation] in asked),
        verified=tuple(relation for relation in assets.datasets if keys[relation] in checks),
        share=share_of(config.sample or assets.project.share),
        tests={relation: tests for relation, tests in tested.items() if tests},
        rebuild=config.rebuild,
        show_rows=assets.project.show_rows,
    )
    result = find_runner(context, resource_key).run_project(context, assets.files, task)
    done = find_done(context)
    for made in _materialise(assets, keys, result):
        if (made.asset_key, made.data_version and made.data_version.value) not in done:
            yield made
    for relation, because in result.skipped.items():
        context.log.warning(f"{relation}: not refreshed, because it reads {', '.join(because)}.")
    for relation, verification in result.verifications.items():
        yield dg.AssetCheckResult(
            asset_key=keys[relation],
            check_name=CHECK,
            passed=verification.ok,
            description=verification.sentence,
            metadata=metadata.of_verification(verification, show_rows=assets.project.show_rows),
        )
    for relation, tests in task.tests.items():
        yield from (_of_test(keys[relation], test, result.tests[test.id]) for test in tests if test.id in result.tests)
    if result.faults:
        raise together({name: failure_of(fault) for name, fault in result.faults.items()})


def _of_test(key: dg.AssetKey, test: DescribedTest, done: TestResult) -> dg.AssetCheckResult:
    """Return the result of a dbt test, which is a warning where dbt warns."""
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=check_name(test),
        passed=not (done.is_error or done.is_warning),
        severity=dg.AssetCheckSeverity.ERROR if done.is_error else dg.AssetCheckSeverity.WARN,
        description=done.fault or f"{test.measure} is {done.value:,}.",
        metadata={} if done.fault else {"failures": done.value},
    )


def maintain_project(
    context: dg.OpExecutionContext, assets: ProjectAssets, resource_key: str | None, retention_hours: float
) -> Mapping[str, dg.MetadataValue]:
    """Maintain the datasets of a project, and return what was done, by their keys. Raises Failure if one failed.

    Those that were copied into more buckets are materialised.
    """
    names = tuple(
        each.relation for each in assets.project.datasets if each.is_view and each.relation in assets.datasets
    )
    task = ProjectTask(maintained=names, retention_hours=retention_hours, show_rows=assets.project.show_rows)
    result = find_runner(context, resource_key).run_project(context, assets.files, task)
    for event in _report_copies(assets, result):
        context.log_event(event)
    if result.faults:
        raise together({name: failure_of(fault) for name, fault in result.faults.items()})
    return {
        f"{assets.keys[name].to_user_string()}: {what}": value
        for name, done in result.upkeep.items()
        for what, value in metadata.of_upkeep(done).items()
    }


def _report_copies(assets: ProjectAssets, result: ProjectResult) -> Iterator[dg.AssetMaterialization]:
    """Yield the events of datasets that maintenance has copied, with the tags that their own step would give."""
    for dataset in assets.project.datasets:
        if (copied := result.views.get(dataset.relation)) is not None:
            version = metadata.data_version(copied.report.generation, copied.report.epoch)
            made: Any = _of_view(assets.project, assets.keys, dataset, copied, {dataset.relation: version}, result)
            yield dg.AssetMaterialization(
                assets.keys[dataset.relation],
                description=copied.report.sentence,
                metadata=made.metadata,
                tags=metadata.version_tags(version, assets.datasets[dataset.relation].code_version or "", {}),
            )


def _materialise(
    assets: ProjectAssets, keys: Mapping[str, dg.AssetKey], result: ProjectResult
) -> Iterator[dg.MaterializeResult[Any]]:
    """Yield the materialisations of a run; keys: as of `ProjectAssets`, in this run."""
    versions = {name: metadata.landed_version(landing) for name, landing in result.landings.items()}
    versions |= {name: str(written.version) for name, written in result.tables.items()}
    versions |= {
        name: metadata.data_version(done.report.generation, done.report.epoch) for name, done in result.views.items()
    }
    for source, landing in result.landings.items():
        version = dg.DataVersion(versions[source])
        yield dg.MaterializeResult(asset_key=keys[source], metadata=metadata.of_landing(landing), data_version=version)
    for dataset in assets.project.datasets:
        if (done := result.views.get(dataset.relation)) is not None:
            yield _of_view(assets.project, keys, dataset, done, versions, result)
        elif (table := result.tables.get(dataset.relation)) is not None:
            yield _of_table(keys[dataset.relation], table)


def _of_view(
    project: ProjectDescription,
    keys: Mapping[str, dg.AssetKey],
    dataset: DescribedDataset,
    done: RefreshedView,
    versions: Mapping[str, str],
    result: ProjectResult,
) -> dg.MaterializeResult[Any]:
    """Return the materialisation of a maintained dataset; versions: the data versions of what the run wrote."""
    report, lineage = done.report, done.description.lineage
    read = {name for origins in lineage.values() for name, _ in origins}
    found = {name: name if name in keys else project.find_source(name) for name in (*read, *result.locations)}
    located = {found[name] or name: path for name, path in result.locations.items()}
    # Dagster itself tags the versions that it looked up before the step, and would show the asset as outdated.
    inputs = {keys[name]: versions[name] for name in dataset.reads if name in versions}
    return dg.MaterializeResult(
        asset_key=keys[dataset.relation],
        metadata={
            **metadata.of_lineage(done.description, {name: keys[of] for name, of in found.items() if of}),
            **metadata.of_refresh(report, {}),
            **metadata.of_shared(result.shared),
            **metadata.view_metadata(done),
            **metadata.state_metadata(done.description),
            **metadata.of_locations({name: located[name] for name in dataset.reads if name in located}),
        },
        data_version=dg.DataVersion(versions[dataset.relation]),
        tags=metadata.input_tags(inputs),
    )


def _of_table(key: dg.AssetKey, done: WrittenTable) -> dg.MaterializeResult[Any]:
    """Return the materialisation of a streaming table, or of a dataset that each run replaces."""
    return dg.MaterializeResult(
        asset_key=key,
        metadata={
            "dagster/uri": dg.MetadataValue.text(done.path),
            "rows": dg.MetadataValue.int(done.rows),
            "version": dg.MetadataValue.int(done.version),
        },
        data_version=dg.DataVersion(str(done.version)),
    )
