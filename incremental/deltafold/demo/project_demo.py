"""Run the demo of a project: one of Spark Declarative Pipelines, refreshed by Deltafold and by Spark, side by side.

`deltafold demo --project FOLDER` writes the project twice below FOLDER/.demo/project: `ours`, which Deltafold
refreshes, and `theirs`, which `spark-pipelines run` refreshes on the same Spark. Both read the same events of flights;
after each change of these, both are timed, and all tables are compared. The flights of 2013 are taken as those of YEARS
years, so that a recomputation is more than its fixed costs.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import SourceError
from deltafold.algebra.results.formats import format_count
from deltafold.algebra.results.pipeline_report import PipelineReport
from deltafold.algebra.sqltext import literal
from deltafold.cli import rendering
from deltafold.demo import flight_files
from deltafold.demo.demo import CORRECTED, FIRST_DAYS, HOME, LATE, show_progress
from deltafold.demo.flight_files import Row
from deltafold.demo.spark_pipelines import ConnectServer
from deltafold.pipelines.declarative import load_project
from deltafold.pipelines.open_project import OpenProject
from deltafold.pipelines.project_run import run_project
from deltafold.pipelines.project_selection import Selection
from deltafold.spark.session import start

SHIPPED = Path(__file__).with_name("project_files")
SPEC = "spark-pipeline.yml"
SOURCES = "nyc"  # the database that the project's files name
OURS, THEIRS = "flights", "flights_by_spark"  # databases
FOLDERS = {OURS: "ours", THEIRS: "theirs"}
YEARS = 10
KEY = "day, carrier, flight, origin, sched_dep_time"
FLIGHT = "day, carrier, flight, origin, dest, sched_dep_time, dep_time, dep_delay, distance"
EVENTS = """
    day DATE, carrier STRING, flight INT, origin STRING, dest STRING, sched_dep_time INT, dep_time INT, dep_delay INT,
    distance INT, operation STRING, sequence BIGINT"""
READ = """
    SELECT add_months(day, -12 * year) AS day, carrier, flight, origin, dest, sched_dep_time, dep_time, dep_delay,
      distance
    FROM csv_flights CROSS JOIN (SELECT explode(sequence(0, {years} - 1)) AS year)"""
HEADERS = ("change", "events", "changed", "deltafold run s", "spark-pipelines run s", "tables")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of the sources, and how it is made."""

    what: str
    make: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A change, the rows that its refresh changed, the seconds of both refreshes, and the datasets that differ."""

    what: str
    events: int
    report: PipelineReport
    ours: float
    theirs: float
    differing: tuple[str, ...]

    @property
    def cells(self) -> tuple[object, ...]:
        """The cells of its row."""
        tables = f"differ: {', '.join(self.differing)}" if self.differing else f"{len(self.report.datasets)} equal"
        changed = sum(dataset.report.change_rows for dataset in self.report.datasets if dataset.report is not None)
        return self.what, f"{self.events:,}", f"{changed:,}", f"{self.ours:.1f}", f"{self.theirs:.1f}", tables


def run_project_demo(folder: Path) -> bool:
    """Run the demo of a project in a folder of the user's. Returns whether all tables are equal after every change."""
    show_progress("starting Spark")
    spark = start("deltafold demo")
    return play_project(folder / HOME / "project", spark, ConnectServer.start(spark), YEARS, FIRST_DAYS)


def play_project(home: Path, spark: SparkSession, server: ConnectServer, years: int, first: int) -> bool:
    """Run the demo in the folder `home`, after removing an earlier one. Returns whether all tables are equal."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700, parents=True)
    (home / ".gitignore").write_text("*\n")
    demo = ProjectDemo(spark, home, years, flight_files.days())
    with demo.databases():
        demo.create()
        steps = [demo.step(change, server) for change in demo.changes(first)]
    print("\n" + rendering.table(HEADERS, [step.cells for step in steps]) + "\n")
    later = [[getattr(step, who) for step in steps[1:]] for who in ("ours", "theirs")]
    ours, theirs = map(median, later)
    print(
        f"Medians after the first load, without the start of Spark and Python: deltafold run {ours:.1f} s, "
        f"spark-pipelines run {theirs:.1f} s.\n"
        "spark-pipelines refuses AUTO CDC into Delta tables, so its table `flights` is a query: "
        f"{os.path.relpath(home / FOLDERS[THEIRS] / 'transformations' / 'flights.sql')}"
    )
    return not any(step.differing for step in steps)


@dataclass(frozen=True)
class ProjectDemo:
    """The project in both folders, and the tables that it reads."""

    spark: SparkSession
    home: Path
    years: int
    flights: Mapping[str, Sequence[Row]]

    @contextmanager
    def databases(self) -> Generator[None]:
        """Create the databases, and drop them with their tables in the end: a warm Spark goes on."""
        with ExitStack() as created:
            for database in (SOURCES, OURS, THEIRS):
                self._sql(f"CREATE DATABASE {database} LOCATION {literal(str(self.home / 'tables' / database))}")
                created.callback(self._sql, f"DROP DATABASE {database} CASCADE")
            yield

    def create(self) -> None:
        """Write both projects, and create the tables that they read."""
        for database, name in FOLDERS.items():
            target = self.home / name
            shutil.copytree(SHIPPED / "transformations", target / "transformations")
            spec = (SHIPPED / SPEC).read_text().format(database=database, storage=f"file://{target / 'storage'}")
            (target / SPEC).write_text(spec)
        theirs = self.home / FOLDERS[THEIRS] / "transformations"
        (theirs / "flights.py").unlink()
        shutil.copyfile(SHIPPED / "for_spark" / "flights.sql", theirs / "flights.sql")
        self._sql(f"CREATE TABLE {SOURCES}.flight_events ({EVENTS}) USING delta")
        flight_files.drop_airlines(self.home / "airlines")
        airlines = self.spark.read.csv(str(self.home / "airlines"), header=True)
        airlines.write.format("delta").saveAsTable(f"{SOURCES}.airlines")

    def changes(self, first: int) -> Iterator[Change]:
        """Yield the changes in their order; first: the days of the first load."""
        order = [day for day in self.flights if day != LATE]
        corrected = {CORRECTED: flight_files.correct_day(self.flights[CORRECTED])}
        renamed = f"UPDATE {SOURCES}.airlines SET name = 'Delta' WHERE carrier = 'DL'"
        yield Change(what=f"first {format_count(first, 'day')}", make=lambda: self._load(order[:first]))
        yield Change(what=order[first], make=lambda: self._upsert(self.flights, order[first], 2))
        yield Change(what=f"{CORRECTED} corrected", make=lambda: self._correct(corrected))
        yield Change(what=f"{LATE}, late", make=lambda: self._upsert(self.flights, LATE, 4))
        yield Change(what=f"{CORRECTED}, older events", make=lambda: self._upsert(self.flights, CORRECTED, 1))
        yield Change(what="an airline renamed", make=lambda: self._sql(renamed))

    def step(self, change: Change, server: ConnectServer) -> Step:
        """Make a change, refresh both projects, and compare their tables."""
        before = self._count_events()
        change.make()
        begin = time.perf_counter()
        report = self._refresh()
        ours = time.perf_counter() - begin
        show_progress(f"{change.what}: deltafold run, {report.sentence}")
        theirs = server.run(self.home / FOLDERS[THEIRS])
        show_progress(f"{change.what}: spark-pipelines run, {theirs:.1f} s")
        names = [dataset.name for dataset in report.datasets]
        return Step(
            what=change.what,
            events=self._count_events() - before,
            report=report,
            ours=ours,
            theirs=theirs,
            differing=tuple(name for name in names if self._differs(name)),
        )

    def _refresh(self) -> PipelineReport:
        """Load the project and refresh it, as `deltafold run` does. Raises SourceError if a dataset fails."""
        opened = OpenProject(load_project(self.home / FOLDERS[OURS] / SPEC, self.spark), self.spark)
        opened.open()
        report = run_project(opened, Selection(), None)
        if not report.ok:
            failed = "; ".join(dataset.sentence for dataset in report.datasets if not dataset.ok)
            raise SourceError(f"{opened.project.name}: a dataset failed: {failed}. Run the demo again.")
        return report

    def _differs(self, name: str) -> bool:
        """Return whether the rows of a dataset differ between both projects, duplicates counted."""
        ours, theirs = (self.spark.table(f"{database}.{name}") for database in (OURS, THEIRS))
        if ours.columns != theirs.columns:
            return True
        both = ours.withColumn("__copies", F.lit(1)).union(theirs.withColumn("__copies", F.lit(-1)))
        copies = both.groupBy(*ours.columns).agg(F.sum("__copies").alias("__copies"))
        return not copies.where("__copies <> 0").isEmpty()

    def _count_events(self) -> int:
        return self.spark.table(f"{SOURCES}.flight_events").count()

    def _load(self, days: Sequence[str]) -> None:
        self._append(f"SELECT *, 'upsert', 1L FROM ({self._read(self.flights, days, self.years)})")

    def _upsert(self, flights: Mapping[str, Sequence[Row]], day: str, sequence: int) -> None:
        self._append(f"SELECT *, 'upsert', {sequence}L FROM ({self._read(flights, [day], 1)})")

    def _correct(self, corrected: Mapping[str, Sequence[Row]]) -> None:
        """Append all flights of a corrected day, and the deletes of those that are no longer in it."""
        (day,) = corrected
        rows = self._read(corrected, [day], 1)
        earlier = f"SELECT * FROM {SOURCES}.flight_events WHERE day = DATE'{day}'"
        self._append(f"""
            SELECT {FLIGHT}, 'upsert', 3L FROM ({rows}) UNION ALL
            SELECT DISTINCT {FLIGHT}, 'delete', 3L FROM ({earlier}) LEFT ANTI JOIN ({rows}) USING ({KEY})""")

    def _read(self, flights: Mapping[str, Sequence[Row]], days: Sequence[str], years: int) -> str:
        """Return a query for the flights of some days, once for each of some years; writes their files first."""
        folder = self.home / "files"
        shutil.rmtree(folder, ignore_errors=True)
        flight_files.drop(folder, flights, days)
        schema = ", ".join(
            f"{name} {'STRING' if name in ('carrier', 'origin', 'dest') else 'INT'}" for name in flight_files.COLUMNS
        )
        reader = self.spark.read.schema(f"{schema}, day DATE").option("header", "true")
        reader.csv(str(folder)).createOrReplaceTempView("csv_flights")
        return READ.format(years=years)

    def _append(self, rows: str) -> None:
        self._sql(f"INSERT INTO {SOURCES}.flight_events {rows}")

    def _sql(self, text: str) -> None:
        cast(Any, self.spark).sql(text)
