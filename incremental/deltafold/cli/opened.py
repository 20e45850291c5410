"""Open a pipeline for a command, run its work, and report the work when the command ends, also if it fails."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltafold.algebra.errors import StateError
from deltafold.cli import orchestrator, scaffold
from deltafold.cli.orchestrator import Landed, Refreshed, ReportedWork, Verified
from deltafold.cli.rendering import Say, show_progress
from deltafold.pipelines import catalogue, descriptions
from deltafold.pipelines.catalogue import DeclarationError, Pipeline

if TYPE_CHECKING:
    from deltafold.algebra.results.upkeep import Upkeep
    from deltafold.api import Landing, Report, Verification, View, Warehouse

PARTITIONS_AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A pipeline with its warehouse and view, on a running Spark."""

    pipeline: Pipeline
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
        landings = catalogue.land_below(self.pipeline, self.warehouse.spark)
        return {below.name: self._record_landings(below, landings[below.name]) for below in self.pipeline.chain}

    def backfill(self, first: str, last: str) -> tuple[Landing, ...]:
        """Land a range of partitions."""
        return self._record_landings(self.pipeline, land_range(self.pipeline, self.warehouse, first, last, self.say))

    def replay(self, source: str | None, *, allow_loss: bool) -> tuple[Landing, ...]:
        """Land partitions with quarantined rows again."""
        self.step("landing quarantined partitions again")
        return self._record_landings(
            self.pipeline, catalogue.replay(self.pipeline, self.warehouse, source, allow_loss=allow_loss)
        )

    def refresh(self, chunk: str | None, *, rebuild: bool = False) -> Report:
        """Refresh or rebuild the view."""
        return self.refresh_by(
            lambda: catalogue.refresh(self.pipeline, self.view, self.step, rebuild=rebuild, chunk=chunk)
        )

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
        view = scaffold.branch_pipeline(self.pipeline, new, self.warehouse.spark)
        made = catalogue.load(new, self.pipeline.folder.parent)
        descriptions.save_descriptions(made, view, self.step)
        self.works.append(Refreshed(made, view, view.history()[-1]))

    def verify(self, share: float) -> Verification:
        """Compare the view with the batch query."""
        self.step("running the batch query for comparison")
        verification = self.view.verify(share)
        self.works.append(Verified(self.pipeline, self.view, verification))
        return verification

    def _record_landings(self, pipeline: Pipeline, landings: tuple[Landing, ...]) -> tuple[Landing, ...]:
        self.works.extend(Landed(pipeline, landing) for landing in landings)
        return landings


@contextmanager
def open_pipeline(
    name: str, *, brief: bool = False, check: Callable[[Pipeline], object] | None = None
) -> Generator[Opened]:
    """Open and compile a pipeline; on exit, report its work to the orchestrator.

    brief: the command takes little work once the view has been loaded, so that Spark only has to start quickly.
    check: raises DeclarationError for arguments that do not fit the pipeline, before Spark starts.
    """
    pipeline = catalogue.load(name)
    if check is not None:
        check(pipeline)
    from deltafold.spark.lost import explain_lost_spark

    with show_progress(f"{name}: starting Spark") as say, explain_lost_spark():
        spark = catalogue.start_spark(pipeline, brief=brief and _is_loaded(pipeline))
        say(f"{name}: compiling the query")
        warehouse, view = catalogue.open(pipeline, spark)
        opened = Opened(pipeline=pipeline, warehouse=warehouse, view=view, say=say)
        try:
            yield opened
        finally:
            orchestrator.send(opened.works, opened.step)


def land_range(
    pipeline: Pipeline, warehouse: Warehouse, first: str, last: str, say: Callable[[str], None]
) -> tuple[Landing, ...]:
    """Land every partition of a range that has files, or was landed before and has none; one landing per group.

    Each group of partitions is one commit, and unchanged partitions are skipped, so an interrupted backfill continues
    when it is run again. The refresh that follows processes all of them at once.

    first, last: both included, compared as text, as days sort. Raises DeclarationError if the range is empty.
    """
    low, high = check_range(pipeline, first, last)
    chosen = {
        source: [partition for partition in warehouse.partitions(source) if low <= partition <= high]
        for source in pipeline.partitioned
    }
    if not any(chosen.values()):
        raise DeclarationError(f"{pipeline.name}: no source has a partition from {low} to {high}. Check its folders.")
    groups = [
        (source, partitions[start : start + PARTITIONS_AT_ONCE])
        for source, partitions in chosen.items()
        for start in range(0, len(partitions), PARTITIONS_AT_ONCE)
    ]
    landings = [warehouse.land(source) for source in pipeline.landed if source not in chosen]
    for number, (source, group) in enumerate(groups, 1):
        say(f"{pipeline.name}: landing {source} from {group[0]} to {group[-1]} ({number} of {len(groups)})")
        landings.append(warehouse.land(source, group))
    return tuple(landings)


def check_range(pipeline: Pipeline, first: str, last: str) -> tuple[str, str]:
    """Return the ends of a range of partitions; raises DeclarationError for one that no partition can be in."""
    low = pipeline.check_partition(first)
    high = pipeline.check_partition(last)
    if high < low:
        raise DeclarationError(f"{pipeline.name}: {high} is before {low}. Exchange --from and --to.")
    return low, high


def _is_loaded(pipeline: Pipeline) -> bool:
    """Return whether the view has a finished epoch; of a view at a URI, whether this machine has described it."""
    if pipeline.is_remote:
        return descriptions.load_description(pipeline) is not None
    try:
        catalogue.address(pipeline)
    except StateError:
        return False
    return True
