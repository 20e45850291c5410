"""Run the demo: the flights of 2013 arrive day by day, and each refresh of the view is timed.

`deltafold demo FOLDER` copies the demo's pipelines to FOLDER/pipelines, unless they are there (as in a checkout of this
project, where `make demo` runs it), and lands the first days at once, then single days, then a day again with
corrections, then a late day. After each refresh the whole query is recomputed in the same process, for comparison. In
the end two views with loops over the same flights (journeys, ranks) are loaded, and a route is cancelled: the days of
the rarest destination are dropped again without it. All other files are written below FOLDER/.demo, where the
pipelines' declarations look for them, and which is cleared at each start.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from deltafold.cli import orchestrator, rendering
from deltafold.cli.orchestrator import Landed, Verified
from deltafold.demo import flight_files
from deltafold.demo.flight_files import DESTINATION, ORIGIN, Row
from deltafold.pipelines import catalogue, picture
from deltafold.pipelines.pipeline import Pipeline
from deltafold.spark.cache import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.api import Landing, Report, View, Warehouse

SHIPPED = Path(__file__).with_name("pipelines")  # a link to the project's folder; in an installed package, its copy
LOOP_PIPELINES = ("routes", "airports")  # they read the table in which `flights` lands its files
PIPELINES = ("flights", *LOOP_PIPELINES)
HOME = ".demo"
PICTURE = "refresh-cost.png"
BENCHMARK = "group_by.json"  # the file that `make bench` writes
LATE = "2013-06-15"
CORRECTED = "2013-03-05"
FIRST_DAYS = 300
SINGLE_DAYS = 12
HEADERS = ("input", "rows in", "changed", "groups", "jobs", "commits", "landing s", "refresh s", "recompute s")


@dataclass(frozen=True)
class OpenedView:
    """A pipeline of the demo with its warehouse and its view."""

    pipeline: Pipeline
    warehouse: Warehouse
    view: View

    def land(self) -> Sequence[Landing]:
        """Land new and changed files, and report it to Dagster."""
        landings = catalogue.land(self.pipeline, self.warehouse)
        orchestrator.send([Landed(self.pipeline, landing) for landing in landings])
        return landings

    def refresh(self, prefix: str = "") -> Report:
        """Refresh the view, print it, and report it to Dagster."""
        report = catalogue.refresh(self.pipeline, self.view, progress=lambda step: None)
        show_progress(prefix + report.sentence)
        orchestrator.send(orchestrator.report_refresh(self.pipeline, self.view, report))
        return report


@dataclass(frozen=True, kw_only=True)
class DemoStep:
    """One refresh: its input, rows and seconds of its landing, its report, seconds of a full recompute after it."""

    what: str
    landed: int
    landing: float
    report: Report
    recomputed: float


@dataclass(frozen=True)
class Arrival:
    """The files dropped before a refresh: `days` of `flights`."""

    what: str
    days: Sequence[str]
    flights: Mapping[str, Sequence[Row]]


def arrivals(flights: Mapping[str, Sequence[Row]], first: int, single: int) -> Iterator[Arrival]:
    """Yield the arrivals of the year: `first` days at once, `single` days one by one, a corrected day, a late day."""
    order = [day for day in flights if day != LATE]
    yield Arrival(f"first {first} days", order[:first], flights)
    for day in order[first : first + single]:
        yield Arrival(day, [day], flights)
    yield Arrival(f"{CORRECTED} again", [CORRECTED], {CORRECTED: flight_files.correct_day(flights[CORRECTED])})
    yield Arrival(f"{LATE}, late", [LATE], flights)


def run_demo(folder: Path) -> bool:
    """Run the whole demo in a folder of the user's. Returns whether all views equal their batch queries."""
    pipelines = folder / catalogue.DEFAULT_FOLDER
    _copy_pipelines(pipelines)
    return play(folder / HOME, catalogue.start_spark, FIRST_DAYS, SINGLE_DAYS, pipelines)


def _copy_pipelines(folder: Path) -> None:
    """Copy the demo's pipelines into a folder; those that are there are not changed."""
    for name in PIPELINES:
        if not (folder / name).exists():
            shutil.copytree(SHIPPED / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def play(
    home: Path,
    start: Callable[[Pipeline], SparkSession],
    first: int,
    single: int,
    pipelines: Path = SHIPPED,
) -> bool:
    """Run the demo in the folder `home`, after removing an earlier one. Returns whether all views are equal."""
    _clear(home)
    os.environ["FLIGHTS_DATA"] = str(home)  # pipeline.yaml uses it in its paths
    pipeline = catalogue.load("flights", pipelines)
    flights = flight_files.days()
    flight_files.drop_airlines(home / "airlines")
    show_progress("starting Spark")
    view = OpenedView(pipeline, *catalogue.open(pipeline, start(pipeline)))
    show_progress("how the query is refreshed:")
    print(view.view.explain(), end="\n\n", flush=True)
    landed: dict[str, Sequence[Row]] = {}
    steps: list[DemoStep] = []
    for arrival in arrivals(flights, first, single):
        flight_files.drop(home / "flights", arrival.flights, arrival.days)
        landed.update((day, arrival.flights[day]) for day in arrival.days)
        steps.append(_step(view, arrival.what, home / "recomputed"))
    _summarize(home, steps)
    show_progress("loops over the same flights: fewest legs between airports, PageRank of airports")
    loops = _open_loops(pipelines, view.warehouse.spark)
    _cancel(home, landed, view, loops)
    return _verify([view, *loops])


def _open_loops(folder: Path, spark: SparkSession) -> list[OpenedView]:
    """Open the pipelines with loops, and load their views."""
    views: list[OpenedView] = []
    for name in LOOP_PIPELINES:
        pipeline = catalogue.load(name, folder)
        views.append(OpenedView(pipeline, *catalogue.open(pipeline, spark)))
        views[-1].refresh()
    return views


def rarest(flights: Mapping[str, Sequence[Row]]) -> tuple[str, dict[str, list[Row]]]:
    """Return the destination with the fewest flights, the first by name of several, and its days without it.

    Nothing departs from it, so that it vanishes from the journeys.
    """
    origins = {row[ORIGIN] for rows in flights.values() for row in rows}
    counts = Counter(row[DESTINATION] for rows in flights.values() for row in rows)
    destination = min(counts.keys() - origins, key=lambda name: (counts[name], name))
    kept = {day: [row for row in rows if row[DESTINATION] != destination] for day, rows in flights.items()}
    return destination, {day: rows for day, rows in kept.items() if len(rows) < len(flights[day])}


def _cancel(home: Path, landed: Mapping[str, Sequence[Row]], flights: OpenedView, loops: Sequence[OpenedView]) -> None:
    """Delete the flights to the rarest destination, refresh all views, and print how many of its journeys are left."""
    destination, days = rarest(landed)
    routes = next(view for view in loops if view.pipeline.name == "routes")
    before = _count_journeys(routes.view, destination)
    flight_files.drop(home / "flights", days, days)
    show_progress(f"all flights to {destination} are deleted")
    flights.land()
    for view in (flights, *loops):
        view.refresh()
    after = _count_journeys(routes.view, destination)
    print(f"journeys from or to {destination}: {before} before, {after} now", flush=True)


def _count_journeys(view: View, airport: str) -> int:
    answer = view.answer()
    return answer.where((answer["start"] == airport) | (answer["end"] == airport)).count()


def _verify(views: Sequence[OpenedView]) -> bool:
    """Compare each view with its batch query; returns whether all are equal."""
    works = [Verified(opened.pipeline, opened.view, opened.view.verify()) for opened in views]
    print("\n" + "\n".join(rendering.render_verification(work.verification) for work in works), flush=True)
    if orchestrator.send(works):
        print("Dagster shows these refreshes: make ui")
    return all(work.verification.ok for work in works)


def _step(view: OpenedView, what: str, target: Path) -> DemoStep:
    """Land what has arrived and refresh; then recompute the whole query, for comparison."""
    begin = time.perf_counter()
    landings = view.land()
    seconds = time.perf_counter() - begin
    report = view.refresh(f"{what}: ")
    return DemoStep(
        what=what,
        landed=sum(landing.rows for landing in landings),
        landing=seconds,
        report=report,
        recomputed=_recompute(view.pipeline, view.warehouse, target),
    )


def _recompute(pipeline: Pipeline, warehouse: Warehouse, target: Path) -> float:
    """Return the seconds of the whole batch query on the same sources, its answer written to a Delta table."""
    begin = time.perf_counter()
    for name, table in warehouse.tables().items():
        version = warehouse.version(name)
        assert version is not None  # the refresh before has landed all sources
        table.at(version).createOrReplaceTempView(name)
    answer = warehouse.spark.sql(pipeline.query.text)  # pyright: ignore[reportUnknownMemberType]
    answer.write.format("delta").mode("overwrite").save(str(target))
    seconds = time.perf_counter() - begin
    for name in warehouse.tables():
        warehouse.spark.catalog.dropTempView(name)
    return seconds


def _summarize(home: Path, steps: Sequence[DemoStep]) -> None:
    print("\n" + rendering.table(HEADERS, map(_cells, steps)) + "\n")
    later = steps[1:]  # the first input takes many times as long
    seconds = {
        "landing": [step.landing for step in later],
        "refresh": [step.report.seconds for step in later],
        "full recompute": [step.recomputed for step in later],
    }
    labels = [step.what for step in later]
    rows = [step.landed for step in later]
    sizes = picture.break_even(cache_folder("benchmarks") / BENCHMARK)
    title = f"Flights of 2013 after the {steps[0].what}"
    (home / PICTURE).write_bytes(picture.cost(labels, rows, seconds, title, sizes))
    print(_comparison({name: median(measured) for name, measured in seconds.items()}))
    print(f"Chart: {os.path.relpath(home / PICTURE)}")


def _comparison(medians: Mapping[str, float]) -> str:
    listed = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in medians.items())
    if medians["refresh"] <= medians["full recompute"]:
        return f"Medians after the first input: {listed}."
    return (
        f"Medians after the first input: {listed}. "
        "A year of flights is small enough to recompute faster; make bench measures larger data."
    )


def _cells(step: DemoStep) -> tuple[object, ...]:
    report = step.report
    counts = (f"{step.landed:,}", f"{report.change_rows:,}", f"{report.groups:,}", report.jobs, report.commits)
    return (step.what, *counts, *(f"{seconds:.1f}" for seconds in (step.landing, report.seconds, step.recomputed)))


def _clear(home: Path) -> None:
    for part in ("flights", "airlines", "warehouse", "recomputed"):
        if (home / part).exists():
            shutil.rmtree(home / part)
    (home / PICTURE).unlink(missing_ok=True)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / ".gitignore").write_text("*\n")


_BEGIN = time.perf_counter()


def show_progress(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"[{time.perf_counter() - _BEGIN:5.0f} s] {text}", flush=True)
