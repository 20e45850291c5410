"""Run the demo: the flights of 2013 arrive day by day, and each refresh of the view is timed.

`deltafold demo FOLDER` copies the demo's pipelines to FOLDER/pipelines, unless they are there (as in a checkout of this
project, where `make demo` runs it), and lands the first days at once, then single days, then a day again with
corrections, then a late day. After each refresh the whole query is recomputed in the same process, for comparison. In
the end two views with loops over the same flights are loaded, and a route is cancelled (`demo_loops`). All other files
are written below FOLDER/.demo, where the pipelines' declarations look for them, and which is cleared at each start.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from deltafold.cli import orchestrator, rendering
from deltafold.cli.orchestrator import Landed, Verified
from deltafold.demo import demo_loops, flight_files
from deltafold.demo.demo_loops import OpenedView
from deltafold.demo.flight_files import Row
from deltafold.pipelines import catalogue, picture
from deltafold.spark.cache import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.api import Report, View, Warehouse

SHIPPED = Path(__file__).with_name("pipelines")  # a link to the project's folder; in an installed package, its copy
PIPELINES = ("flights", *demo_loops.LOOP_PIPELINES)
HOME = ".demo"
PICTURE = "refresh-cost.png"
BENCHMARK = "group_by.json"  # the file that `make bench` writes
LATE = "2013-06-15"
CORRECTED = "2013-03-05"
FIRST_DAYS, SINGLE_DAYS = 300, 12
HEADERS = ("input", "rows in", "changed", "groups", "jobs", "commits", "landing s", "refresh s", "recompute s")


@dataclass(frozen=True)
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
    copy_pipelines(pipelines)
    return play(folder / HOME, catalogue.start_spark, FIRST_DAYS, SINGLE_DAYS, pipelines)


def copy_pipelines(folder: Path) -> None:
    """Copy the demo's pipelines into a folder; those that are there are not changed."""
    for name in PIPELINES:
        if not (folder / name).exists():
            shutil.copytree(SHIPPED / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def play(
    home: Path,
    start: Callable[[catalogue.Pipeline], SparkSession],
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
    _show_progress("starting Spark")
    warehouse, view = catalogue.open(pipeline, start(pipeline))
    _show_progress("how the query is refreshed:")
    print(view.explain(), end="\n\n", flush=True)
    landed: dict[str, Sequence[Row]] = {}
    steps: list[DemoStep] = []
    for arrival in arrivals(flights, first, single):
        flight_files.drop(home / "flights", arrival.flights, arrival.days)
        landed.update((day, arrival.flights[day]) for day in arrival.days)
        steps.append(_step(pipeline, warehouse, view, arrival.what, home / "recomputed"))
    _summary(home, steps)
    _show_progress("loops over the same flights: fewest legs between airports, PageRank of airports")
    loops = demo_loops.open_pipelines(pipelines, warehouse.spark, _show_progress)
    demo_loops.cancel(home, landed, OpenedView(pipeline, warehouse, view, _show_progress), loops)
    return _verify([OpenedView(pipeline, warehouse, view, _show_progress), *loops])


def _verify(views: Sequence[OpenedView]) -> bool:
    """Compare each view with its batch query; returns whether all are equal."""
    found = [(each, each.view.verify()) for each in views]
    print("\n" + "\n".join(rendering.render_verification(verified) for _, verified in found), flush=True)
    if orchestrator.send([Verified(each.pipeline, each.view, verified) for each, verified in found]):
        print("Dagster shows these refreshes: make ui")
    return all(verified.ok for _, verified in found)


def _step(pipeline: catalogue.Pipeline, warehouse: Warehouse, view: View, what: str, target: Path) -> DemoStep:
    begin = time.perf_counter()
    landings = catalogue.land(pipeline, warehouse)
    seconds = time.perf_counter() - begin
    report = catalogue.refresh(pipeline, view, progress=lambda step: None)
    _show_progress(f"{what}: {report.sentence}")
    landed = [Landed(pipeline, landing) for landing in landings]
    orchestrator.send([*landed, *orchestrator.report_refresh(pipeline, view, report)])
    recomputed = _recompute(pipeline, warehouse, target)
    return DemoStep(what, sum(landing.rows for landing in landings), seconds, report, recomputed)


def _recompute(pipeline: catalogue.Pipeline, warehouse: Warehouse, target: Path) -> float:
    """Return the seconds of the whole batch query on the same sources, its answer written to a Delta table."""
    begin = time.perf_counter()
    for name, table in warehouse.tables().items():
        version = warehouse.version(name)
        assert version is not None  # the refresh before has landed all sources
        table.at(version).createOrReplaceTempView(name)
    answer = warehouse.spark.sql(pipeline.query.text)
    answer.write.format("delta").mode("overwrite").save(str(target))
    seconds = time.perf_counter() - begin
    for name in warehouse.tables():
        warehouse.spark.catalog.dropTempView(name)
    return seconds


def _summary(home: Path, steps: Sequence[DemoStep]) -> None:
    print("\n" + rendering.table(HEADERS, map(_cells, steps)) + "\n")
    later = steps[1:]  # the first input takes many times as long
    seconds = {
        "landing": [step.landing for step in later],
        "refresh": [step.report.seconds for step in later],
        "full recompute": [step.recomputed for step in later],
    }
    labels, rows = [step.what for step in later], [step.landed for step in later]
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


def _show_progress(text: str) -> None:
    print(f"[{time.perf_counter() - _BEGIN:5.0f} s] {text}", flush=True)
