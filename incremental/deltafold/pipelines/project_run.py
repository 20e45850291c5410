"""Refresh the datasets of a project, with its streaming tables, as one pipeline."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NoReturn

from pyspark.errors import StreamingQueryException

from deltafold.algebra.errors import SourceError
from deltafold.algebra.results.pipeline_report import PipelineReport
from deltafold.algebra.results.report import Report
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import place_of
from deltafold.operations.openlineage import Job, name_pipeline, open_run
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.graph import Parts, UnavailableError
from deltafold.pipelines.open_project import OpenProject, ProjectRefusedError, describe_published
from deltafold.pipelines.project import Dataset, StreamingTable
from deltafold.pipelines.project_selection import Selection
from deltafold.refresh import pipeline_run
from deltafold.refresh.pipeline_run import RunState, refresh_datasets
from deltafold.refresh.sources.upstream import Progress
from deltafold.resolution import Resolver
from deltafold.spark import catalyst
from deltafold.spark.java_errors import causes, conditions, first_line, sentence_of_analysis
from deltafold.spark.lost import explain_lost_spark
from deltafold.spark.threads import choose_threads

CHANGED_ROWS = {"DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES"}  # Delta's errors of a stream
REPLACED_TABLE = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"


def run_project(
    opened: OpenProject,
    selection: Selection,
    progress: Progress | None,
    explain: Callable[[Exception], str] = str,
) -> PipelineReport:
    """Refresh the chosen datasets as one pipeline; what these read, too, except where it was not selected (D-191).

    explain: returns what the report and the progress show of an error. Raises LostSparkError, ProjectRefusedError if a
    selected dataset reads one that was never refreshed, and DeclarationError for half a chain of streams to rebuild.
    """
    work = selection.work(opened.reads)
    check_streams(opened, work)
    if selection.only:
        check_refreshed(opened, work)
    with open_run(lambda: Job(name=name_pipeline(opened.warehouse.root))) as run:
        datasets = _datasets_of_run(opened, work, Resolver(run), only=selection.only)
        run.report = report = refresh_datasets(datasets, progress, opened.spark, choose_threads(None), explain)
        return report


def check_refreshed(opened: OpenProject, work: Mapping[Parts, bool]) -> None:
    """Raise ProjectRefusedError for chosen datasets that read others which were never refreshed."""
    refusals = list[str]()
    for key in work:
        for relation in opened.reads.reads[key].values():
            if relation.node is None or relation.parts in work or relation.parts in opened.refused:
                continue
            if opened.tables.is_written(relation.node):
                is_empty = opened.warehouse.version(relation.source) == 0  # which creates it
            else:
                is_empty = opened.views[relation.parts].store.journal.last_complete() is None
            if is_empty:
                node, read = opened.graph.nodes[key], relation.node.name
                refusals.append(
                    f"{node.origin}: {node.name}: it reads {read}, which was never refreshed. Select that, too, or "
                    f"+{relation.parts[-1]} with all that it reads."
                )
    if refusals:
        raise ProjectRefusedError("\n".join(refusals))


def check_streams(opened: OpenProject, work: Mapping[Parts, bool]) -> None:
    """Raise DeclarationError for a streaming table that is emptied while another one, which streams it, is not."""
    for reader, streamed in opened.reads.streams.items():
        emptied = [key for key in streamed if work.get(key) and key in opened.graph.nodes]
        if emptied and not work.get(reader):
            name, table = opened.graph.nodes[reader].name, opened.graph.nodes[emptied[0]].name
            raise DeclarationError(
                f"{table}: {name} streams it, and a stream does not go on with a table that was filled again. Name "
                f"both, or neither: --full-refresh {table},{name}."
            )


def _datasets_of_run(
    opened: OpenProject, work: Mapping[Parts, bool], resolver: Resolver, *, only: bool
) -> list[pipeline_run.Dataset]:
    """Return the chosen datasets, and what they read, in the form that is refreshed."""
    views = {view.name: work[key] for key, view in opened.views.items() if key in work}
    rebuilt = [name for name, full in views.items() if full]
    keys = {view.folder: key for key, view in opened.views.items()}
    datasets = {
        keys[dataset.folder]: _view_of_run(opened, keys[dataset.folder], dataset)
        for dataset in resolver.datasets(opened.warehouse, views, rebuilt, only=only)
    }
    for key, full in work.items():
        if key not in opened.refused and opened.tables.is_written(opened.graph.nodes[key]):
            datasets[key] = _table_of_run(opened, key, full=full)
    for node in opened.reads.find_needed(work):
        if refusal := opened.refused.get(key := opened.graph.key(node)):
            datasets[key] = _fail(opened, key, refusal.name, refusal.error, str(refusal.origin))
    reads = opened.reads.reads
    found = {each.parts: each.source for key in datasets for each in reads[key].values() if each.node is None}
    for key, source in found.items():
        if source in opened.unlanded:
            datasets[key] = _fail(opened, key, source, opened.unlanded[source])
    for key, dataset in datasets.items():
        below = {each.parts for each in reads.get(key, {}).values()} if dataset.fault is None else set[Parts]()
        datasets[key] = replace(dataset, reads=tuple(datasets[each].folder for each in below & datasets.keys()))
    return [*datasets.values()]


def _fail(opened: OpenProject, key: Parts, name: str, error: Exception, origin: str = "") -> pipeline_run.Dataset:
    """Return what cannot be refreshed as a dataset of a run, which fails, or is skipped because of what it reads."""

    def refuse(state: RunState, progress: Progress | None) -> NoReturn:
        raise error

    fault = None if isinstance(error, UnavailableError) else error
    folder = place_of(opened.tables.checkpoints(key))
    return pipeline_run.Dataset(name=name, folder=folder, reads=(), refresh=refuse, origin=origin, fault=fault)


def _table_of_run(opened: OpenProject, key: Parts, *, full: bool) -> pipeline_run.Dataset:
    """Return a table that no view keeps as a dataset of a run; full: emptied first."""
    table = opened.graph.nodes[key]
    source = opened.warehouse.tables().get(opened.graph.relation(key, table).source)

    folder = place_of(opened.tables.checkpoints(key))
    wait = opened.warehouse.tuning.lock_seconds

    def write(state: RunState, progress: Progress | None) -> int:
        with records_at(folder).lock(f"table {table.name}", "refreshed", wait), _explain_errors(table.name):
            if isinstance(table, StreamingTable):
                return opened.tables.append(table, full=full)
            return opened.tables.recompute(table, state.done.clock)

    return pipeline_run.Dataset(
        name=table.name,
        origin=str(table.origin),
        folder=folder,
        reads=(),
        refresh=write,
        writes={} if source is None else {source.place: source},
    )


def _view_of_run(opened: OpenProject, key: Parts, dataset: pipeline_run.Dataset) -> pipeline_run.Dataset:
    """Return a view as a dataset of a run, which gets its comment and its properties after it was refreshed."""
    node = opened.graph.nodes[key]
    assert isinstance(node, Dataset)

    def refresh(state: RunState, progress: Progress | None) -> Report | int:
        done = dataset.refresh(state, progress)
        if isinstance(done, Report) and done.kept is not None:
            return done
        with _explain_errors(node.name):
            describe_published(opened.spark, opened.views[key], node)
        return done

    return replace(dataset, name=node.name, origin=str(node.origin), refresh=refresh)


@contextmanager
def _explain_errors(name: str) -> Generator[None]:
    """Raise SourceError for errors of Spark's, LostSparkError where it has ended."""
    try:
        with explain_lost_spark():
            yield
    except StreamingQueryException as error:
        found = conditions(error)
        if changed := CHANGED_ROWS.intersection(found):
            place = found[changed.pop()].get("dataPath", "of a flow")
            raise SourceError(
                f"{name}: its stream stopped: the table {place} lost or changed rows, and a stream takes new ones "
                f"alone. Read that table in a materialized view, or begin again with what it has now: --full-refresh "
                f"{name}."
            ) from error
        if REPLACED_TABLE in found:
            raise SourceError(
                f"{name}: its stream stopped: a table that it reads was replaced by another one. Begin again with what "
                f"that has now: --full-refresh {name}."
            ) from error
        cause = first_line(causes(error)[-1]).rstrip(".")
        raise SourceError(
            f"{name}: its stream stopped: {cause}. Correct the query or the data, and run again."
        ) from error
    except catalyst.JavaError as error:
        raise SourceError(f"{name}: {sentence_of_analysis(error)}") from error
