"""Open a pipeline for a command, do its work, and report the work when the command ends, also when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipelines import catalogue, descriptions
from pipelines.commands import backfill, branching, orchestrator
from pipelines.commands.orchestrator import Landed, Refreshed, Verified, Work
from pipelines.commands.progress import Say, show_progress

if TYPE_CHECKING:
    from incremental.api import Landing, Report, Verification, View, Warehouse


@dataclass(frozen=True)
class Opened:
    """A pipeline with its warehouse and view, on a running Spark."""

    pipeline: catalogue.Pipeline
    warehouse: Warehouse
    view: View
    say: Say
    works: list[Work] = field(default_factory=list[Work])

    def step(self, text: str) -> None:
        """Show what is under way."""
        self.say(f"{self.pipeline.name}: {text}")

    def land(self, partitions: Sequence[str]) -> tuple[Landing, ...]:
        """Land what was dropped, or just these partitions."""
        self.step("landing what was dropped")
        return self._landed(self.pipeline, catalogue.land(self.pipeline, self.warehouse, partitions))

    def land_below(self) -> dict[str, tuple[Landing, ...]]:
        """Land what was dropped for every pipeline below, by its name, the lowest first."""
        if not self.pipeline.chain:
            return {}
        found = catalogue.land_below(self.pipeline, self.warehouse.spark)
        return {each.name: self._landed(each, found[each.name]) for each in self.pipeline.chain}

    def backfill(self, first: str, last: str) -> tuple[Landing, ...]:
        """Land a range of partitions."""
        return self._landed(self.pipeline, backfill.backfill(self.pipeline, self.warehouse, first, last, self.say))

    def replay(self, source: str | None) -> tuple[Landing, ...]:
        """Land again what has rows in quarantine."""
        self.step("landing again what is in quarantine")
        return self._landed(self.pipeline, catalogue.replay(self.pipeline, self.warehouse, source))

    def refresh(self, chunk: str | None, rebuild: bool = False) -> Report:
        """Refresh or rebuild the view."""
        return self.moved(lambda: catalogue.refresh(self.pipeline, self.view, self.step, rebuild, chunk))

    def moved(self, work: Callable[[], Report]) -> Report:
        """Run what moves the view to another epoch."""
        report = work()
        self.works.extend(orchestrator.report_refresh(self.pipeline, self.view, report))
        return report

    def branch(self, new: str) -> None:
        """Make another pipeline that begins where this one is."""
        view = branching.branch(self.pipeline, new, self.warehouse.spark)
        made = catalogue.load(new, self.pipeline.folder.parent)
        descriptions.describe(made, view, self.step)
        self.works.append(Refreshed(made, view, view.history()[-1]))

    def verify(self, share: float) -> Verification:
        """Compare the view with the batch query."""
        self.step("recomputing for comparison")
        found = self.view.verify(share)
        self.works.append(Verified(self.pipeline, self.view, found))
        return found

    def _landed(self, pipeline: catalogue.Pipeline, landings: tuple[Landing, ...]) -> tuple[Landing, ...]:
        self.works.extend(Landed(pipeline, landing) for landing in landings)
        return landings


@contextmanager
def open_pipeline(name: str) -> Iterator[Opened]:
    """Return the pipeline of this name, compiled, which reports to the orchestrator."""
    pipeline = catalogue.load(name)
    with show_progress(f"{name}: starting Spark") as say:
        spark = catalogue.start(pipeline)
        say(f"{name}: compiling the query")
        found = Opened(pipeline, *catalogue.open(pipeline, spark), say)
        try:
            yield found
        finally:
            orchestrator.send(found.works, found.step)
