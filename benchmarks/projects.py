"""Refresh datasets as one project of Deltafold, or recompute all of them: what benchmarks of pipelines measure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from deltafold.algebra.results.pipeline_report import PipelineReport
from deltafold.api import Delta, View
from deltafold.pipelines.open_project import OpenProject
from deltafold.pipelines.project import Dataset, Origin, Project, RefreshPolicy
from deltafold.pipelines.project_run import run_project
from deltafold.pipelines.project_selection import Selection


@dataclass(frozen=True)
class Datasets:
    """Queries by dataset, each over those before it and over Delta tables below a folder.

    inlined: the datasets that have no table, as dbt's models of the kind `view`.
    """

    spark: SparkSession
    folder: Path
    queries: Mapping[str, str]
    tables: Collection[str]
    policy: RefreshPolicy = "auto"
    inlined: Collection[str] = ()

    @cached_property
    def opened(self) -> OpenProject:
        """The project, compiled."""
        datasets = [
            Dataset(
                name=name,
                query=query,
                origin=Origin(file=Path(__file__), line=1),
                kept=name not in self.inlined,
                policy=self.policy,
            )
            for name, query in self.queries.items()
        ]
        opened = OpenProject(
            Project(
                name="benchmark",
                folder=self.folder,
                storage=str(self.folder / "project"),
                datasets=tuple(datasets),
                sources={name: Delta(str(self.folder / name)) for name in self.tables},
            ),
            self.spark,
        )
        opened.open()
        return opened

    def refresh(self) -> PipelineReport:
        """Refresh all datasets in one run. Raises SystemExit if one fails."""
        report = run_project(self.opened, Selection(), None)
        if not report.ok:
            raise SystemExit("\n".join(dataset.sentence for dataset in report.datasets if not dataset.ok))
        Console().print(f"  {report.sentence}; changes read once and used several times: {len(report.shared)}")
        for dataset in report.datasets:
            Console().print(f"  {dataset.seconds:6.2f} s {dataset.sentence}")
        return report

    def register(self) -> None:
        """Make temporary views of the tables as they are now, which `recompute` reads."""
        for name in self.tables:
            self.spark.read.format("delta").load(str(self.folder / name)).createOrReplaceTempView(name)

    def recompute(self) -> None:
        """Replace each dataset by its query over those before it."""
        for name, query in self.queries.items():
            rows = self.spark.sql(query)
            if name not in self.inlined:
                path = str(self.folder / "recomputed" / name)
                rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)
                rows = self.spark.read.format("delta").load(path)
            rows.createOrReplaceTempView(name)

    def verify(self) -> None:
        """Compare each dataset with its batch query. Raises SystemExit if one differs."""
        verify_all(self.opened.views.values())


def verify_all(views: Iterable[View]) -> None:
    """Compare each view with its batch query. Raises SystemExit if one differs."""
    for view in views:
        verification = view.verify()
        if not verification.ok:
            raise SystemExit(verification.sentence)
        Console().print(verification.sentence)
