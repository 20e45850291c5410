"""Do the part of an orchestrator's step on a project that needs Spark: land, refresh and verify what was selected.

As in `tasks`, the task and its result are plain data, and errors show no value of a row unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter

from deltafold.algebra.errors import LostSparkError
from deltafold.algebra.results.pipeline_report import KEPT, SKIPPED, DatasetResult
from deltafold.algebra.results.report import Landing, Verification
from deltafold.algebra.results.upkeep import Upkeep
from deltafold.pipelines.project import Dataset, StreamingTable
from deltafold.pipelines.project_files import name_lineage
from deltafold.pipelines.tasks import RefreshedView, TaskFault, describe_view, explain_fault

if TYPE_CHECKING:
    from deltafold.pipelines.graph import Parts
    from deltafold.pipelines.project_run import OpenProject


@dataclass(frozen=True, kw_only=True)
class WrittenTable:
    """A table that is not a view, after a run. rows: those that its flows read, or that its query gave."""

    path: str
    version: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class ProjectResult:
    """What a task has done, by the names of landed sources and the relations of datasets.

    skipped: with the datasets that failed.
    """

    landings: dict[str, Landing]
    views: dict[str, RefreshedView]
    tables: dict[str, WrittenTable]
    verifications: dict[str, Verification]
    upkeep: dict[str, Upkeep]
    faults: dict[str, TaskFault]
    skipped: dict[str, tuple[str, ...]]


def read_project_result(data: Any) -> ProjectResult:
    """Return the result of which `dataclasses.asdict` made the data; raises ValueError for anything else."""
    return TypeAdapter(ProjectResult).validate_python(data)


@dataclass(frozen=True, kw_only=True)
class ProjectTask:
    """Land sources, refresh datasets, compare a share of the keys of some with their queries, and maintain some.

    datasets, verified, maintained: relations; what these read besides is read as it is. rebuild: all of the datasets;
    retention_hours: how long files are kept that no reader needs; show_rows: errors may show values of rows.
    """

    sources: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    verified: tuple[str, ...] = ()
    maintained: tuple[str, ...] = ()
    share: float = 1.0
    rebuild: bool = False
    retention_hours: float = 168
    show_rows: bool = False

    def do(self, opened: OpenProject, progress: Callable[[str], None]) -> ProjectResult:
        """Do it; datasets that fail are in the result. Raises DeltafoldError where none can be opened or landed."""
        from deltafold.pipelines.project_run import Selection, run_project

        result = ProjectResult(landings={}, views={}, tables={}, verifications={}, upkeep={}, faults={}, skipped={})
        for source in self.sources:
            progress(f"{source}: landing files")
            result.landings[source] = opened.warehouse.land(source)
        relations = {*self.datasets, *self.verified, *self.maintained}
        if not relations:
            return result
        keys = {name: opened.graph.complete(opened.graph.parse(name)) for name in relations}
        opened.open(keys.values())
        faults = dict[str, TaskFault]()

        def explain(error: Exception) -> str:
            fault = explain_fault(error, show_rows=self.show_rows)
            faults[fault.sentence] = fault
            return fault.sentence

        if self.datasets:
            selection = Selection(exactly=self.datasets, full_refresh_all=self.rebuild)
            for done in run_project(opened, selection, progress, explain).datasets:
                if done.outcome != KEPT and done.name in self.datasets:
                    _add(result, opened, keys[done.name], done, faults)
        views = {name: opened.views[key] for name, key in keys.items() if key in opened.views}
        for name in sorted(views.keys() - result.faults.keys() - result.skipped.keys()):
            try:
                if name in self.verified:
                    result.verifications[name] = views[name].verify(self.share)
                if name in self.maintained:
                    result.upkeep[name] = views[name].maintain(self.retention_hours, progress)
            except LostSparkError:
                raise
            except Exception as error:
                result.faults[name] = explain_fault(error, show_rows=self.show_rows)
        return result


def _add(
    result: ProjectResult, opened: OpenProject, key: Parts, done: DatasetResult, faults: dict[str, TaskFault]
) -> None:
    """Add what a run did to a dataset."""
    if done.outcome == SKIPPED:
        result.skipped[done.name] = done.because
    elif done.error_type:
        result.faults[done.name] = faults[done.error]
    elif done.report is not None:
        view = opened.views[key]
        described = view.description()
        named = replace(described, lineage=name_lineage(opened, key, described.lineage))
        result.views[done.name] = describe_view(view, done.report, named)
    else:
        result.tables[done.name] = _describe_table(opened, opened.graph.nodes[key], done.rows or 0)


def _describe_table(opened: OpenProject, node: Dataset | StreamingTable, rows: int) -> WrittenTable:
    from deltafold.algebra.sqltext import quoted

    name = ".".join(map(quoted, opened.graph.key(node)))
    sql = cast(Any, opened.spark).sql
    [detail] = sql(f"DESCRIBE DETAIL {name}").collect()
    [newest] = sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()
    return WrittenTable(path=detail["location"], version=newest["version"], rows=rows)
