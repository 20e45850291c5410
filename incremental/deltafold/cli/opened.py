"""Open a pipeline for a command, run its work, and report the work when the command ends, also if it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltafold.algebra.errors import StateError
from deltafold.cli import backfill, branching, orchestrator
from deltafold.cli.orchestrator import Landed, Refreshed, ReportedWork, Verified
from deltafold.cli.progress import Say, show_progress
from deltafold.pipelines import catalogue, descriptions

if TYPE_CHECKING:
    from deltafold.algebra.results.upkeep import Upkeep
    from deltafold.api import Landing, Report, Verification, View, Warehouse


@dataclass(frozen=True)
class Opened:
    """A pipeline with its warehouse and view, on a running Spark."""

    pipeline: catalogue.Pipeline
    warehouse: Warehouse
    view: View
    say: Say
    works: list[ReportedWork] = field(default_factory=list[ReportedWork])

    def step(self, text: str) -> None:
        """Show a step of the work as progress."""
        self.say(f"{self.pipeline.name}: {text}")

    def land(self, partitions: Sequence[str]) -> tuple[Landing, ...]:
        """Land the changed partitions, or just these."""
        self.step("landing files")
        return self._record_landings(self.pipeline, catalogue.land(self.pipeline, self.warehouse, partitions))

    def land_below(self) -> dict[str, tuple[Landing, ...]]:
        """Land the changed partitions of every pipeline below, by name, the lowest first."""
        if not self.pipeline.chain:
            return {}
        found = catalogue.land_below(self.pipeline, self.warehouse.spark)
        return {each.name: self._record_landings(each, found[each.name]) for each in self.pipeline.chain}

    def backfill(self, first: str, last: str) -> tuple[Landing, ...]:
        """Land a range of partitions."""
        return self._record_landings(
            self.pipeline, backfill.land_range(self.pipeline, self.warehouse, first, last, self.say)
        )

    def replay(self, source: str | None, allow_loss: bool) -> tuple[Landing, ...]:
        """Land partitions with quarantined rows again."""
        self.step("landing quarantined partitions again")
        return self._record_landings(self.pipeline, catalogue.replay(self.pipeline, self.warehouse, source, allow_loss))

    def refresh(self, chunk: str | None, rebuild: bool = False) -> Report:
        """Refresh or rebuild the view."""
        return self.refresh_by(lambda: catalogue.refresh(self.pipeline, self.view, self.step, rebuild, chunk))

    def refresh_by(self, work: Callable[[], Report]) -> Report:
        """Run work that takes the view to another epoch, and record it for the orchestrator."""
        report = work()
        self.works.extend(orchestrator.report_refresh(self.pipeline, self.view, report))
        return report

    def maintain(self, hours: float) -> Upkeep:
        """Maintain the tables, and record a copy into more buckets for the orchestrator."""
        done = self.view.maintain(hours, self.step)
        if done.grown is not None:
            self.works.extend(orchestrator.report_refresh(self.pipeline, self.view, done.grown))
        return done

    def branch(self, new: str) -> None:
        """Create a branch of this pipeline."""
        view = branching.branch_pipeline(self.pipeline, new, self.warehouse.spark)
        made = catalogue.load(new, self.pipeline.folder.parent)
        descriptions.save_descriptions(made, view, self.step)
        self.works.append(Refreshed(made, view, view.history()[-1]))

    def verify(self, share: float) -> Verification:
        """Compare the view with the batch query."""
        self.step("running the batch query for comparison")
        found = self.view.verify(share)
        self.works.append(Verified(self.pipeline, self.view, found))
        return found

    def _record_landings(self, pipeline: catalogue.Pipeline, landings: tuple[Landing, ...]) -> tuple[Landing, ...]:
        self.works.extend(Landed(pipeline, landing) for landing in landings)
        return landings


@contextmanager
def open_pipeline(
    name: str, brief: bool = False, check: Callable[[catalogue.Pipeline], object] | None = None
) -> Iterator[Opened]:
    """Open and compile a pipeline; on exit, report its work to the orchestrator.

    brief: the command takes little work once the view has been loaded, so that Spark only has to start quickly.
    check: raises DeclarationError for arguments that do not fit the pipeline, before Spark starts.
    """
    pipeline = catalogue.load(name)
    if check is not None:
        check(pipeline)
    from deltafold.spark.lost import explain_lost_spark

    with show_progress(f"{name}: starting Spark") as say, explain_lost_spark():
        spark = catalogue.start_spark(pipeline, brief and _is_loaded(pipeline))
        say(f"{name}: compiling the query")
        found = Opened(pipeline, *catalogue.open(pipeline, spark), say)
        try:
            yield found
        finally:
            orchestrator.send(found.works, found.step)


def _is_loaded(pipeline: catalogue.Pipeline) -> bool:
    """Return whether the view has a finished epoch; of a view at a URI, whether this machine has described it."""
    if pipeline.is_remote:
        return descriptions.load_description(pipeline) is not None
    try:
        catalogue.address(pipeline)
    except StateError:
        return False
    return True
