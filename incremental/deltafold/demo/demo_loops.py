"""The loops of the demo: journeys and ranks over the landed flights, and a route that is cancelled.

The pipelines `routes` and `airports` read the table in which `flights` lands its files. The cancelled route is that of
the rarest destination: its days are dropped again without it, and all three views take it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deltafold.cli import orchestrator
from deltafold.cli.orchestrator import Landed
from deltafold.demo import flight_files
from deltafold.demo.flight_files import DESTINATION, ORIGIN, Row
from deltafold.pipelines import catalogue
from deltafold.pipelines.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.api import View, Warehouse

LOOP_PIPELINES = ("routes", "airports")


@dataclass(frozen=True)
class OpenedView:
    """A pipeline of the demo with its warehouse and its view; show: prints a line of progress."""

    pipeline: Pipeline
    warehouse: Warehouse
    view: View
    show: Callable[[str], None]

    def refresh(self) -> None:
        """Refresh the view, and report it."""
        report = catalogue.refresh(self.pipeline, self.view, progress=lambda step: None)
        self.show(report.sentence)
        orchestrator.send(orchestrator.report_refresh(self.pipeline, self.view, report))


def open_pipelines(folder: Path, spark: SparkSession, show: Callable[[str], None]) -> list[OpenedView]:
    """Open the pipelines with loops, and load their views."""
    pipelines = [catalogue.load(name, folder) for name in LOOP_PIPELINES]
    found = [OpenedView(each, *catalogue.open(each, spark), show) for each in pipelines]
    for each in found:
        each.refresh()
    return found


def rarest(flights: Mapping[str, Sequence[Row]]) -> tuple[str, dict[str, list[Row]]]:
    """Return the destination with the fewest flights, the first by name of several, and its days without it.

    Nothing departs from it, so that it vanishes from the journeys.
    """
    origins = {row[ORIGIN] for rows in flights.values() for row in rows}
    counts = Counter(row[DESTINATION] for rows in flights.values() for row in rows)
    destination = min(counts.keys() - origins, key=lambda name: (counts[name], name))
    kept = {day: [row for row in rows if row[DESTINATION] != destination] for day, rows in flights.items()}
    return destination, {day: rows for day, rows in kept.items() if len(rows) < len(flights[day])}


def cancel(home: Path, landed: Mapping[str, Sequence[Row]], flights: OpenedView, loops: Sequence[OpenedView]) -> None:
    """Delete the flights to the rarest destination, refresh all views, and print what they have of it."""
    destination, days = rarest(landed)
    journeys = next(each.view for each in loops if each.pipeline.name == "routes")
    before = _journeys(journeys, destination)
    flight_files.drop(home / "flights", days, days)
    flights.show(f"all flights to {destination} are deleted")
    landings = catalogue.land(flights.pipeline, flights.warehouse)
    orchestrator.send([Landed(flights.pipeline, landing) for landing in landings])
    for each in (flights, *loops):
        each.refresh()
    print(f"journeys from or to {destination}: {before} before, {_journeys(journeys, destination)} now", flush=True)


def _journeys(view: View, airport: str) -> int:
    answer = view.answer()
    return answer.where((answer["start"] == airport) | (answer["end"] == airport)).count()
