"""Do the part of an orchestrator's step that needs Spark: land, refresh, verify, maintain.

A task and its result are plain data: an orchestrator does the task in its own process, or sends it to a process that
runs where Spark is, which sends the result back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, TypeAdapter

from deltafold.algebra.results.address import Address
from deltafold.algebra.results.report import NOTHING_TO_DO, Description, Landing, Report, Verification
from deltafold.algebra.results.upkeep import Upkeep
from deltafold.pipelines import catalogue, descriptions
from deltafold.pipelines.catalogue import Pipeline

if TYPE_CHECKING:
    from deltafold.api import View, Warehouse

CHARTED_REFRESHES = 30
"""The number of reports in a RefreshedView, which must be small: every event of an orchestrator has a chart of them."""

TaskResult = TypeVar("TaskResult")


@dataclass(frozen=True)
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
        there = set(warehouse.partitions(self.source))
        return warehouse.land(self.source, [key for key in self.partitions if key in there] or list(self.partitions))


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
        report = catalogue.refresh(pipeline, view, progress, self.rebuild)
        done = {each.view: replace(each, below=report.below) for each in report.below}
        below = tuple(
            describe_refreshed(each, its_view, done[name])
            for name, (each, its_view) in descriptions.chain(pipeline, view).items()
            if name in done and done[name].verdict != NOTHING_TO_DO
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
    return RefreshedView(
        report,
        descriptions.current_description(pipeline, view),
        view.count(),
        view.address,
        tuple(view.history()[-CHARTED_REFRESHES:]),
        find_locations(pipeline, view, report),
    )


def find_locations(pipeline: Pipeline, view: View, report: Report) -> dict[str, str]:
    """Return the path of each table that a refresh read by its name in the catalog, which only Spark can query."""
    sources = pipeline.declaration.sources.items()
    named = {name: source.table for name, source in sources if source.table and name in report.versions}
    tables = view.warehouse.tables() if named else {}
    return {table: tables[name].path for name, table in named.items()}
