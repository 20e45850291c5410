"""Do the part of an orchestrator's step on a project that needs Spark: land, refresh and verify what was selected.

As in `tasks`, the task and its result are plain data, and errors show no value of a row unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter

from deltafold.algebra.errors import LostSparkError, QueryError
from deltafold.algebra.results.pipeline_report import KEPT, SKIPPED
from deltafold.algebra.results.report import Landing, Report, Verification
from deltafold.algebra.results.upkeep import Upkeep
from deltafold.algebra.sqltext import quoted
from deltafold.pipelines.described_project import DescribedTest
from deltafold.pipelines.project_files import name_lineage, name_relation
from deltafold.pipelines.tasks import RefreshedView, TaskFault, describe_view, explain_fault

if TYPE_CHECKING:
    from deltafold.pipelines.graph import Parts
    from deltafold.pipelines.open_project import OpenProject


@dataclass(frozen=True, kw_only=True)
class WrittenTable:
    """A table that is not a view, after a run. rows: those that its flows read, or that its query gave."""

    path: str
    version: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """The value that a test measured, and whether that is an error or a warning; fault: why it could not measure it."""

    value: int = 0
    is_error: bool
    is_warning: bool
    fault: str = ""


@dataclass(frozen=True, kw_only=True)
class ProjectResult:
    """What a task has done, by the names of landed sources, the relations of datasets, and the ids of tests.

    views: those that were refreshed, or copied into more buckets by maintenance; shared: by location, how many datasets
    used a change that was read once; locations: of the tables that were read, by their names in a description; skipped:
    with the datasets that failed; faults: also of datasets that the task was not asked for, but reads.
    """

    landings: dict[str, Landing] = field(default_factory=dict[str, Landing])
    views: dict[str, RefreshedView] = field(default_factory=dict[str, RefreshedView])
    tables: dict[str, WrittenTable] = field(default_factory=dict[str, WrittenTable])
    verifications: dict[str, Verification] = field(default_factory=dict[str, Verification])
    tests: dict[str, TestResult] = field(default_factory=dict[str, "TestResult"])
    upkeep: dict[str, Upkeep] = field(default_factory=dict[str, Upkeep])
    shared: dict[str, int] = field(default_factory=dict[str, int])
    locations: dict[str, str] = field(default_factory=dict[str, str])
    faults: dict[str, TaskFault] = field(default_factory=dict[str, TaskFault])
    skipped: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def is_complete(self, relation: str) -> bool:
        """Whether a dataset has neither failed nor been skipped."""
        return relation not in self.faults and relation not in self.skipped


def read_project_result(data: Any) -> ProjectResult:
    """Return the result of which `dataclasses.asdict` made the data; raises ValueError for anything else."""
    return TypeAdapter(ProjectResult).validate_python(data)


@dataclass(frozen=True, kw_only=True)
class ProjectTask:
    """Land sources, refresh datasets, compare a share of the keys of some with their queries, test and maintain some.

    datasets, verified, maintained, and the keys of tests: relations; what these read besides is read as it is. rebuild:
    all of the datasets; retention_hours: how long files are kept that no reader needs; show_rows: errors may show
    values of rows.
    """

    sources: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    verified: tuple[str, ...] = ()
    tests: Mapping[str, tuple[DescribedTest, ...]] = field(default_factory=dict[str, "tuple[DescribedTest, ...]"])
    maintained: tuple[str, ...] = ()
    share: float = 1.0
    rebuild: bool = False
    retention_hours: float = 168
    show_rows: bool = False

    def do(self, opened: OpenProject, progress: Callable[[str], None]) -> ProjectResult:
        """Do it; what fails is in the result. Raises DeltafoldError for what is refused of the whole project."""
        result = ProjectResult()
        for source in self.sources:
            if (landing := opened.land_source(source, progress)) is not None:
                result.landings[source] = landing
        for source, error in opened.unlanded.items():
            result.faults[source] = explain_fault(error, show_rows=self.show_rows)
        relations = sorted({*self.datasets, *self.verified, *self.tests, *self.maintained})
        if relations:
            keys = {name: opened.graph.complete(opened.graph.parse(name)) for name in relations}
            opened.check()
            opened.open_possible(keys.values())
            if self.datasets:
                self._refresh(opened, keys, result, progress)
            for name in filter(result.is_complete, relations):
                self._check(opened, name, keys[name], result, progress)
        return result

    def _refresh(
        self, opened: OpenProject, keys: Mapping[str, Parts], result: ProjectResult, progress: Callable[[str], None]
    ) -> None:
        """Add what a run did to the datasets; keys: by relation."""
        from deltafold.pipelines.project_run import run_project
        from deltafold.pipelines.project_selection import Selection

        faults = dict[str, TaskFault]()

        def explain(error: Exception) -> str:
            fault = explain_fault(error, show_rows=self.show_rows)
            faults[fault.sentence] = fault
            return fault.sentence

        selection = Selection(exactly=self.datasets, full_refresh_all=self.rebuild)
        report = run_project(opened, selection, progress, explain)
        result.shared.update(report.shared)
        result.locations.update(_find_locations(opened, [keys[name] for name in self.datasets]))
        for done in report.datasets:
            if done.error_type:  # also one that is read as it is: its readers are only skipped
                fault, where = faults[done.error], f"{done.origin}: " if done.origin else ""
                result.faults[done.name] = replace(fault, sentence=f"{where}{fault.sentence}")
            elif done.name not in self.datasets or done.outcome == KEPT:
                continue
            elif done.outcome == SKIPPED:
                result.skipped[done.name] = done.because
            elif done.report is not None:
                result.views[done.name] = _describe_view(opened, keys[done.name], done.report)
            else:
                result.tables[done.name] = _describe_table(opened, keys[done.name], done.rows or 0)

    def _check(
        self, opened: OpenProject, name: str, key: Parts, result: ProjectResult, progress: Callable[[str], None]
    ) -> None:
        """Compare, test and maintain a dataset, as far as that is asked for; a failure is added to the result."""
        view = opened.views.get(key)
        try:
            if refusal := opened.refused.get(key):
                raise refusal.error
            if view is not None and name in self.verified:
                result.verifications[name] = view.verify(self.share)
            if view is not None and name in self.maintained:
                result.upkeep[name] = done = view.maintain(self.retention_hours, progress)
                if done.grown is not None:
                    result.views[name] = _describe_view(opened, key, done.grown)
        except LostSparkError:
            raise
        except Exception as error:
            result.faults[name] = explain_fault(error, show_rows=self.show_rows)
        for test in self.tests.get(name, ()):
            result.tests[test.id] = self._run_test(opened, test)

    def _run_test(self, opened: OpenProject, test: DescribedTest) -> TestResult:
        """Return the result of a test, an error if it cannot run."""
        from deltafold.spark.lost import explain_lost_spark

        try:
            with explain_lost_spark():
                return _measure(opened, test)
        except LostSparkError:
            raise
        except Exception as error:
            fault = explain_fault(error, show_rows=self.show_rows)
            return TestResult(is_error=True, is_warning=False, fault=fault.sentence)


def _measure(opened: OpenProject, test: DescribedTest) -> TestResult:
    """Measure the rows that a test selects, and compare that, as dbt does. Raises QueryError if that has no value."""
    measure, limit = f"({test.measure})", "" if test.limit is None else f"LIMIT {test.limit}"
    rows = opened.evaluate(
        f"SELECT CAST({measure} AS BIGINT), {measure} {test.error_if}, {measure} {test.warn_if} "
        f"FROM (SELECT * FROM (\n{test.query}\n) {limit})"
    ).take(2)
    if len(rows) != 1 or None in tuple(rows[0]):  # in a Row it would be the name of a column
        raise QueryError(
            f"test {test.name}: fail_calc `{test.measure}` is NULL or more than one value. Configure another one, such "
            "as count(*)."
        )
    value, is_error, is_warning = cast("tuple[int, bool, bool]", rows[0])
    return TestResult(value=value, is_error=is_error and test.severity == "error", is_warning=is_warning)


def _describe_view(opened: OpenProject, key: Parts, report: Report) -> RefreshedView:
    view = opened.views[key]
    described = view.description()
    lineage = name_lineage(opened, key, described.lineage)
    return describe_view(view, report, replace(described, lineage=lineage))


def _find_locations(opened: OpenProject, keys: Sequence[Parts]) -> Iterator[tuple[str, str]]:
    """Yield the tables that datasets read and no dataset is, with their paths, which only Spark can look up."""
    tables = opened.warehouse.tables()
    relations = {each for key in keys for each in opened.reads.reads[key].values() if each.node is None}
    for relation in relations:
        if relation.source in tables:
            yield name_relation(opened, relation), tables[relation.source].path


def _describe_table(opened: OpenProject, key: Parts, rows: int) -> WrittenTable:
    name, sql = ".".join(map(quoted, key)), cast(Any, opened.spark).sql
    [detail] = sql(f"DESCRIBE DETAIL {name}").collect()
    [newest] = sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()
    return WrittenTable(path=detail["location"], version=newest["version"], rows=rows)
