"""Run or check a project: of Spark Declarative Pipelines, of dbt, by its manifest, or a pipeline of many datasets."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from deltafold.algebra.errors import DeltafoldError
from deltafold.algebra.local_path import plain
from deltafold.algebra.results.formats import format_count
from deltafold.cli.exit_codes import code_of_name
from deltafold.cli.rendering import Say, show_progress
from deltafold.pipelines import catalogue
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.project_files import SPEC_NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.algebra.results.pipeline_report import DatasetResult, PipelineReport
    from deltafold.algebra.results.report import Verification
    from deltafold.algebra.results.upkeep import Upkeep
    from deltafold.pipelines.open_project import OpenProject
    from deltafold.pipelines.project_selection import Selection
    from deltafold.view import View


Work = Literal["little", "refresh", "much"]
"""What Spark is started for: a refresh is little work if the last one was (D-235)."""
FEW_ROWS = 10_000_000  # read by a run, below which Java without its second compiler is quicker


def locate_spec(spec: Path | None, folder: Path) -> Path:
    """Return the specification: the named one, else that of a folder or of the nearest one around it.

    Raises DeclarationError if there is none.
    """
    if spec is not None:
        return spec
    if (found := find_spec(folder)) is not None:
        return found
    raise DeclarationError(
        f"{folder}: there is no {SPEC_NAMES[0]} in it or around it. Name a pipeline, a specification (--spec FILE), or "
        "the manifest of a dbt project (--dbt target/manifest.json)."
    )


def find_spec(folder: Path) -> Path | None:
    """Return the specification of a folder or of the nearest one around it; None if there is none."""
    files = (around / name for around in (folder, *folder.parents) for name in SPEC_NAMES)
    return next(filter(Path.is_file, files), None)


@contextmanager
def open_dbt_project(manifest: Path, tables: str | None, *, work: Work = "much") -> Generator[tuple[OpenProject, Say]]:
    """Load the project of a manifest, and start Spark; tables: the folder of tables that are in no catalog.

    work: of the command, also of the other functions.
    """
    from deltafold.pipelines.dbt import load_project

    project = load_project(manifest, tables)
    from deltafold.pipelines.open_project import OpenProject

    with _start_spark(project.name, {}, storage=project.storage, work=work) as (spark, say):
        yield OpenProject(project, spark), say


@contextmanager
def open_project(path: Path, *, work: Work = "much") -> Generator[tuple[OpenProject, Say]]:
    """Start Spark with the settings of a specification, and load its project."""
    from deltafold.pipelines.declarative import load_project, read_spec
    from deltafold.pipelines.open_project import OpenProject

    spec = read_spec(path)
    with _start_spark(spec.name, spec.configuration, storage=spec.storage, work=work) as (spark, say):
        say(f"{spec.name}: loading the project")
        yield OpenProject(load_project(path, spark, spec), spark), say


@contextmanager
def open_folder_project(name: str, *, work: Work = "much") -> Generator[tuple[OpenProject, Say]]:
    """Load the datasets of a pipeline, and start the Spark that it declares."""
    from deltafold.pipelines.folder_project import load_project

    project = load_project(catalogue.pipelines_folder().absolute() / name)
    from deltafold.pipelines.open_project import OpenProject

    with _start_spark(name, project.settings, project.spark, storage=project.storage, work=work) as (spark, say):
        yield OpenProject(project, spark), say


@contextmanager
def open_dataset(opening: AbstractContextManager[tuple[OpenProject, Say]], name: str) -> Generator[View]:
    """Open the view of one dataset of a project. Raises DeclarationError if there is none."""
    with opening as (opened, _):
        yield opened.find_view(name)


@contextmanager
def _start_spark(
    name: str,
    settings: Mapping[str, str],
    options: Mapping[str, Any] = MappingProxyType({}),
    *,
    storage: str,
    work: Work,
) -> Generator[tuple[SparkSession, Say]]:
    """Start Spark for a project of this name; options: its master and memory."""
    from deltafold.spark.lost import explain_lost_spark
    from deltafold.spark.session import start

    brief = work == "little" or (work == "refresh" and _was_small(storage))
    with show_progress(f"{name}: starting Spark") as say, explain_lost_spark():
        yield start(f"deltafold {name}", settings=settings, brief=brief, **options), say


def _was_small(storage: str) -> bool:
    """Return whether the last refreshes of all datasets read few rows; False before the first, and at a URI."""
    from deltafold.store.journal import JOURNAL, Journal

    journals = (Journal(folder) for folder in Path(plain(storage), "warehouse", "views").glob(f"*/{JOURNAL}"))
    try:
        last = [entry.report for journal in journals if (entry := journal.last_complete()) is not None]
    except DeltafoldError:
        return False  # raised again by what opens it
    return bool(last) and sum(report.rows_read for report in last) < FEW_ROWS


def names_in(lists: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in comma-separated lists."""
    return tuple(name.strip() for names in lists or () for name in names.split(",") if name.strip())


def exit_code(report: PipelineReport) -> int:
    """Return 0 if every dataset was refreshed, else the code of the first error."""
    return next((code_of_name(each.error_type) for each in report.datasets if each.error_type), 0)


def render_pipeline(report: PipelineReport) -> str:
    """Render a line for each dataset, and a summary with the slowest."""
    lines = [_line(dataset) for dataset in report.datasets]
    counts = ", ".join(f"{number} {outcome}" for outcome, number in report.counts.items())
    summary = f"{format_count(len(report.datasets), 'dataset')}: {counts}; {report.jobs:,} jobs, {report.seconds:.1f} s"
    if report.behind:
        summary += f"; not at the versions of this run, with what reads them: {', '.join(report.behind)}"
    elif report.versions and report.ok:
        summary += f"; all at one version of {format_count(len(report.versions), 'source')}"
    if report.shared:
        summary += f"; the changes of {format_count(len(report.shared), 'source')} read once for several datasets"
    if len(report.datasets) > 1:
        slowest = max(report.datasets, key=lambda dataset: dataset.seconds)
        summary += f"; the slowest: {slowest.name} {slowest.seconds:.1f} s"
    return "\n".join([*lines, summary])


def _line(dataset: DatasetResult) -> str:
    return f"FAILED {dataset.sentence}" if dataset.error_type else dataset.sentence


def maintain_all(opened: OpenProject, hours: float, say: Say) -> tuple[list[Upkeep], dict[str, DeltafoldError]]:
    """Maintain the datasets that were refreshed; returns what was done, and the errors of others by name."""
    opened.check()
    opened.open_possible(create=False)
    done: list[Upkeep] = []
    faults: dict[str, DeltafoldError] = {}
    for key, view in opened.views.items():
        name = opened.graph.nodes[key].name
        try:
            if view.store.journal.last_complete() is not None:
                done.append(view.maintain(hours, lambda step, name=name: say(f"{name}: {step}")))
        except DeltafoldError as error:
            faults[name] = error
    return done, faults


def verify_all(
    opened: OpenProject, selection: Selection, share: float, say: Say
) -> tuple[dict[str, Verification], dict[str, Exception], list[str]]:
    """Compare a share of the keys of the chosen datasets with their queries.

    Returns:
        results and errors by name, and the names of those that were never refreshed. What each run writes is left out.
    """
    opened.check()
    chosen = selection.work(opened.reads)
    never = [*opened.open_possible(chosen, create=False)]
    done: dict[str, Verification] = {}
    faults: dict[str, Exception] = {}
    for key in filter(chosen.__contains__, map(opened.graph.key, opened.reads.order)):
        name, view = opened.graph.nodes[key].name, opened.views.get(key)
        if refusal := opened.refused.get(key):
            faults[name] = refusal.error
        elif view is None:
            continue
        elif view.store.journal.last_complete() is None:
            never.append(name)
        else:
            say(f"{name}: running the batch query for comparison")
            try:  # the view has another name where the dataset is in a database
                done[name] = replace(view.verify(share), view=name, sentence="")
            except DeltafoldError as error:
                faults[name] = error
    return done, faults, never


def status_rows(opened: OpenProject, say: Say, prefix: str = "") -> Iterator[dict[str, Any]]:
    """Yield the state of each dataset, as `catalogue.status_row` does; prefix: of their names."""
    opened.check()
    unknown = opened.open_possible(create=False)
    for node in opened.reads.order:
        key = opened.graph.key(node)
        say(f"{node.name}: reading status")
        row: dict[str, Any] = {"name": f"{prefix}{node.name}"}
        if refusal := opened.refused.get(key):
            yield row | {"state": "failing", "problem": refusal.sentence}
        elif view := opened.views.get(key):
            try:
                yield row | catalogue.describe_status(view.status())
            except DeltafoldError as error:
                yield row | {"state": "failing", "problem": str(error)}
        else:
            yield row | {"state": "never refreshed" if node.name in unknown else "written by each run"}


def render_graph(opened: OpenProject, unknown: Sequence[str], selected: Collection[tuple[str, ...]]) -> str:
    """Render a line for each selected dataset with what it reads, in the order of a run; unknown: only analysed."""
    from deltafold.pipelines.graph import UnavailableError

    lines = list[str]()
    for node in opened.reads.order:
        key = opened.graph.key(node)
        refusal = opened.refused.get(key)
        if refusal is not None and key in selected and isinstance(refusal.error, UnavailableError):
            lines.append(f"{node.name}: {refusal.error}")
        if refusal is not None or key not in selected:
            continue
        read = sorted(
            relation.node.name if relation.node is not None else opened.show_source(relation)
            for relation in opened.reads.reads[key].values()
        )
        mode = f", {opened.views[key].mode}" if key in opened.views else ""
        mode = ", replaced at each run" if key in opened.reads.unversioned else mode
        lines.append(f"{node.name}: reads {', '.join(read) or 'no table'}{mode}")
    if len(selected) < len(opened.reads.order):
        lines.append(f"selected: {len(selected)} of {format_count(len(opened.reads.order), 'dataset')}")
    if unknown:
        lines.append(f"not compiled before a run has created the streaming tables: {', '.join(unknown)}")
    return "\n".join(lines)
