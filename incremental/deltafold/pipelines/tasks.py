"""Do the part of an orchestrator's step that needs Spark: land, refresh, verify, maintain; or describe why it failed.

A task, its result and its fault are plain data: an orchestrator does the task in its own process, or sends it to a
process that runs where Spark is, which sends the result or the fault back.

    DeltafoldError    its sentence; not tried again, since the same input gives the same error
    BusyError         likewise, but tried again: the other process will end
    LostSparkError    likewise, but tried again: the next attempt starts another Spark, and finishes what was begun
    anything else     a crash: its class is the sentence; tried again, which is safe, since a refresh finishes a
                      half-written epoch, and a landing replaces whole partitions

More people can read an orchestrator's database than the data, and the messages of Spark and Python contain values ("The
value 'x' cannot be cast"). So the sentence is the `logged` form of a DeltafoldError, without the message of any other
exception, unless the pipeline declares `show_rows_in_errors: true`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, TypeAdapter

from deltafold.algebra.errors import BusyError, DeltafoldError, LostSparkError, RefusedError
from deltafold.algebra.results.address import Address
from deltafold.algebra.results.report import NOTHING_TO_DO, Description, Landing, Report, Verification
from deltafold.algebra.results.upkeep import Upkeep
from deltafold.pipelines import catalogue, descriptions
from deltafold.pipelines.catalogue import Pipeline

if TYPE_CHECKING:
    from deltafold.api import View, Warehouse

CHARTED_REFRESHES = 30
"""The number of reports in a RefreshedView, which must be small: every event of an orchestrator has a chart of them."""

SHOWN_BY = (
    "run from a terminal, `deltafold --debug` shows everything, and `show_rows_in_errors: true` in pipeline.yaml does "
    "so here"
)

TaskResult = TypeVar("TaskResult")


@dataclass(frozen=True, kw_only=True)
class RefreshedView:
    """A view after a refresh, as an orchestrator shows it.

    rows: of the answer; history: the last reports, oldest first, at most CHARTED_REFRESHES; locations: the path of each
    table that it read by its name in the catalog; below: the views below that the refresh took to other epochs, the
    lowest first.
    """

    report: Report
    description: Description
    rows: int
    address: Address
    history: tuple[Report, ...]
    locations: dict[str, str]
    below: tuple[RefreshedView, ...] = ()


@dataclass(frozen=True)
class MaintainedView:
    """The upkeep of a view; copied: the view after it was copied into more buckets, None if it was not."""

    upkeep: Upkeep
    copied: RefreshedView | None = None


class Task(Generic[TaskResult]):
    """Work on one pipeline, whose result is of the class `gives`."""

    gives: ClassVar[type]

    def do(self, pipeline: Pipeline, warehouse: Warehouse, view: View, progress: Callable[[str], None]) -> TaskResult:
        """Do the work on the opened pipeline. Raises what the API raises (DeltafoldError)."""
        raise NotImplementedError


@dataclass(frozen=True)
class LandTask(Task[Landing]):
    """Land partitions of a source; none given: all whose files changed, or all of a source without partitions.

    Of several partitions some may have no files; it raises SourceError if none has.
    """

    source: str
    partitions: tuple[str, ...] = ()
    kind: Literal["land"] = "land"
    gives = Landing

    def do(self, pipeline: Pipeline, warehouse: Warehouse, view: View, progress: Callable[[str], None]) -> Landing:
        """Land them in one call."""
        if not self.partitions:
            return warehouse.land(self.source)
        with_files = set(warehouse.partitions(self.source))
        chosen = [key for key in self.partitions if key in with_files]
        return warehouse.land(self.source, chosen or list(self.partitions))


@dataclass(frozen=True)
class RefreshTask(Task[RefreshedView]):
    """Refresh the view, or rebuild it, with the views below."""

    rebuild: bool = False
    kind: Literal["refresh"] = "refresh"
    gives = RefreshedView

    def do(
        self, pipeline: Pipeline, warehouse: Warehouse, view: View, progress: Callable[[str], None]
    ) -> RefreshedView:
        """Refresh it, and describe it and the views below that changed."""
        report = catalogue.refresh(pipeline, view, progress, rebuild=self.rebuild)
        reports = {below.view: replace(below, below=report.below) for below in report.below}
        below = tuple(
            describe_refreshed(below_pipeline, below_view, reports[name])
            for name, (below_pipeline, below_view) in descriptions.chain(pipeline, view).items()
            if name in reports and reports[name].verdict != NOTHING_TO_DO
        )
        return replace(describe_refreshed(pipeline, view, report), below=below)


@dataclass(frozen=True)
class VerifyTask(Task[Verification]):
    """Compare a share of the view's keys, 1.0 for all, with the batch query."""

    share: float
    kind: Literal["verify"] = "verify"
    gives = Verification

    def do(self, pipeline: Pipeline, warehouse: Warehouse, view: View, progress: Callable[[str], None]) -> Verification:
        """Compare them at the versions of the last epoch."""
        return view.verify(self.share)


@dataclass(frozen=True)
class MaintainTask(Task[MaintainedView]):
    """Compact the tables of the view and its landed sources, and remove files older than some hours."""

    retention_hours: float
    kind: Literal["maintain"] = "maintain"
    gives = MaintainedView

    def do(
        self, pipeline: Pipeline, warehouse: Warehouse, view: View, progress: Callable[[str], None]
    ) -> MaintainedView:
        """Maintain them."""
        done = view.maintain(self.retention_hours, progress)
        return MaintainedView(done, describe_refreshed(pipeline, view, done.grown) if done.grown else None)


AnyTask = Annotated[LandTask | RefreshTask | VerifyTask | MaintainTask, Field(discriminator="kind")]


def read_task(data: Any) -> Task[Any]:
    """Return the task of which `dataclasses.asdict` made the data; raises ValueError for anything else."""
    return TypeAdapter[Task[Any]](AnyTask).validate_python(data)


def read_result(task: Task[TaskResult], data: Any) -> TaskResult:
    """Return the task's result, of which `dataclasses.asdict` made the data; raises ValueError for anything else."""
    return TypeAdapter[Any](task.gives).validate_python(data)


def describe_refreshed(pipeline: Pipeline, view: View, report: Report) -> RefreshedView:
    """Describe a view after a refresh, without the views below."""
    described = describe_view(view, report, descriptions.current_description(pipeline, view))
    return replace(described, locations=find_locations(pipeline, view, report))


def describe_view(view: View, report: Report, description: Description) -> RefreshedView:
    """Describe a view of any project after a refresh."""
    return RefreshedView(
        report=report,
        description=description,
        rows=view.count(),
        address=view.address,
        history=tuple(view.history()[-CHARTED_REFRESHES:]),
        locations={},
    )


def find_locations(pipeline: Pipeline, view: View, report: Report) -> dict[str, str]:
    """Return the path of each table that a refresh read by its name in the catalog, which only Spark can query."""
    sources = pipeline.declaration.sources.items()
    named = {name: source.table for name, source in sources if source.table and name in report.versions}
    tables = view.warehouse.tables() if named else {}
    return {table: tables[name].path for name, table in named.items()}


@dataclass(frozen=True)
class TaskFault:
    """Why a task failed.

    parts: the class of the error, and node, reason and fix of a refusal; again: whether another attempt may succeed.
    """

    sentence: str
    parts: Mapping[str, str]
    again: bool


def explain_fault(error: Exception, *, show_rows: bool) -> TaskFault:
    """Describe an exception; show_rows: with values of rows."""
    parts = {"error": type(error).__name__}
    if isinstance(error, RefusedError):
        parts |= {part: str(getattr(error, part)) for part in ("node", "because", "instead")}
    if isinstance(error, DeltafoldError):
        sentence = str(error) if show_rows else _omit_values(error)
        return TaskFault(sentence, parts, isinstance(error, BusyError | LostSparkError))
    return TaskFault(f"{type(error).__name__}: {error}" if show_rows else _crash(error), parts, again=True)


def _omit_values(error: DeltafoldError) -> str:
    """Return the error's sentence without values; if it has any, with the way to see them."""
    if error.logged == str(error):
        return error.logged
    return f"{error.logged.rstrip('.')}. Values of rows are omitted: {SHOWN_BY}."


def _crash(error: Exception) -> str:
    """Return the class of an unexpected exception, Spark's or the system's name for it, and how to see its message."""
    condition = getattr(error, "getCondition", lambda: None)()  # of Spark, such as CAST_INVALID_INPUT
    kind = f"{type(error).__name__} [{condition}]" if condition else type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{kind}: {error.strerror}" + (f": {error.filename}" if error.filename else "")
    return f"Unexpected {kind}. Its message, which may contain values of rows, is omitted: {SHOWN_BY}."
