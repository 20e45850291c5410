"""Define the result of refreshing the datasets of a pipeline together, as plain data and JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from deltafold.algebra.results.report import NOTHING_TO_DO, Json, Report

Outcome = Literal["refreshed", "nothing to do", "read as it is", "failed", "skipped"]
REFRESHED: Final = "refreshed"
KEPT: Final = "read as it is"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
OUTCOMES: tuple[Outcome, ...] = REFRESHED, NOTHING_TO_DO, KEPT, FAILED, SKIPPED


@dataclass(frozen=True, kw_only=True, repr=False)
class DatasetResult(Json):
    """One dataset of a pipeline, by its name: a view, or a table that is written otherwise; or a source that failed.

    origin: file and line of its declaration, where it has one; reads: the datasets that it reads; report: of a view's
    refresh, None if it failed or was skipped; rows: of a table, those that its flows read or that were written, None
    likewise; error, error_type: the message of the exception for which it failed, and its class; because: the failed
    datasets for which it was skipped; seconds: wall clock, the wait for a thread left out.
    """

    name: str
    outcome: Outcome
    origin: str = ""
    reads: tuple[str, ...] = ()
    report: Report | None = None
    rows: int | None = None
    error: str = ""
    error_type: str = ""
    because: tuple[str, ...] = ()
    seconds: float = 0.0

    def __post_init__(self) -> None:
        # JSON has no tuples, and dictionaries for reports
        report = cast("Report | dict[str, Any] | None", self.report)
        object.__setattr__(self, "report", Report(**report) if isinstance(report, dict) else report)
        object.__setattr__(self, "reads", tuple(self.reads))
        object.__setattr__(self, "because", tuple(self.because))

    @property
    def ok(self) -> bool:
        """Whether what reads the dataset can be refreshed."""
        return self.outcome not in (FAILED, SKIPPED)

    @property
    def missed(self) -> dict[str, int]:
        """The version in the run of each base source of which a dataset that was read as it is has another one."""
        return {} if self.report is None or self.report.kept is None else self.report.kept.missed

    @property
    def sentence(self) -> str:
        """One line for a terminal."""
        if self.report is not None:  # whose view has another name where the dataset is in a database
            return f"{self.name}{self.report.sentence.removeprefix(self.report.view)}"
        if self.rows is not None:
            return f"{self.name}: {self.rows:,} rows in {self.seconds:.1f} s"
        if self.outcome == SKIPPED:
            return f"{self.name}: {SKIPPED} because {', '.join(self.because)} failed"
        where = f"{self.origin}: " if self.origin else ""
        return f"{where}{self.name}: {FAILED} with {self.error_type}: {self.error}"


@dataclass(frozen=True, kw_only=True, repr=False)
class PipelineReport(Json):
    """One refresh of a pipeline.

    datasets: each after those that it reads; versions: the version of each source, by the location of its table, that
    they were refreshed to, except those that are `behind` and what reads them; shared: likewise, how often a change was
    used that was read once; seconds: wall clock.
    """

    datasets: tuple[DatasetResult, ...]
    versions: dict[str, int] = field(default_factory=dict[str, int])
    shared: dict[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    finished: str = ""

    def __post_init__(self) -> None:
        stored = cast("tuple[DatasetResult | dict[str, Any], ...]", self.datasets)  # JSON has dictionaries
        made = (each if isinstance(each, DatasetResult) else DatasetResult(**each) for each in stored)
        object.__setattr__(self, "datasets", tuple(made))

    def __getitem__(self, name: str) -> DatasetResult:
        """Return the result of a dataset; raises KeyError if it was not part of the run."""
        for dataset in self.datasets:
            if dataset.name == name:
                return dataset
        raise KeyError(name)

    @property
    def ok(self) -> bool:
        """Whether no dataset failed or was skipped."""
        return all(dataset.ok for dataset in self.datasets)

    @property
    def behind(self) -> tuple[str, ...]:
        """The datasets that were read as they are, and are not at the versions of the run."""
        return tuple(dataset.name for dataset in self.datasets if dataset.missed)

    @property
    def counts(self) -> dict[Outcome, int]:
        """The number of datasets by outcome, zeros left out."""
        counted = Counter(dataset.outcome for dataset in self.datasets)
        return {outcome: counted[outcome] for outcome in OUTCOMES if counted[outcome]}

    @property
    def rows_read(self) -> int:
        """Records read by all scans of all datasets."""
        return sum(report.rows_read for report in self._reports)

    @property
    def rows_written(self) -> int:
        """Records written to the tables of all datasets."""
        return sum(report.rows_written for report in self._reports)

    @property
    def jobs(self) -> int:
        """Spark jobs of all datasets."""
        return sum(report.jobs for report in self._reports)

    @property
    def sentence(self) -> str:
        """One line for a terminal."""
        counts = ", ".join(f"{number} {outcome}" for outcome, number in self.counts.items()) or "no dataset"
        return f"{counts}, {self.jobs:,} jobs, {self.rows_read:,} rows read, {self.seconds:.1f} s"

    @property
    def _reports(self) -> list[Report]:
        return [dataset.report for dataset in self.datasets if dataset.report is not None]
