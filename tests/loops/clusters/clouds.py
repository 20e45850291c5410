"""Random points and the statements that change them, and what k-means over them has to be: answer and log of points."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

from pyspark.sql import DataFrame

from deltafold.api import View
from tests.loops import queries
from tests.loops.references import numeric_oracles
from tests.sandbox import Sandbox, as_asked, confirm, rows

STEPS = 3  # of queries.clusters
POINTS, SEEDS = "id int, x double, y double", "x double, y double"
CORNERS = [(0.0, 0.0), (0.0, 16.0), (16.0, 0.0), (16.0, 16.0)]
WAYS: list[dict[str, Any]] = [
    {"reread_share": 2}, {"local_bytes": 0, "local_rows": 0, "reread_share": 1}, {},
    {"bucket_bytes": 1, "buckets": 3, "reread_share": 2},
]  # fmt: skip
KINDS = ("eighths", "grid", "doubles")


class Cloud:
    """Random points, some of them odd: around corners in eighths, on a grid with many ties, or anywhere."""

    def __init__(self, seed: int, kind: str = "eighths") -> None:
        self.chance, self._number, self.kind = random.Random(seed), 0, kind
        self.spread = self.chance.choice([8, 24, 120])

    def point(self) -> tuple[int, float | None, float | None]:
        """One point; rarely one that has no center, or an id that others have too."""
        x, y = self._place()
        odd = self.chance.random()
        self._number += odd > 0.1
        return self._number, float("nan") if 0.1 < odd < 0.14 else x, None if 0.14 < odd < 0.18 else y

    def _place(self) -> tuple[float, float]:
        if self.kind == "grid":
            return float(self.chance.randint(0, 16)), float(self.chance.randint(0, 16))
        if self.kind == "doubles":
            return self.chance.uniform(0, 16), self.chance.uniform(0, 16)
        x, y = (each + self.chance.randint(-self.spread, self.spread) / 8 for each in self.chance.choice(CORNERS))
        return x, y

    def points(self, number: int) -> list[tuple[int, float | None, float | None]]:
        return [self.point() for _ in range(number)]

    def change(self, sandbox: Sandbox) -> str:
        """Change the points or the start; returns the statement."""
        low = self.chance.randint(0, 40)
        inserted = [self.point() for _ in range(self.chance.randint(1, 6))]
        statement = self.chance.choice([
            "insert", "insert", "insert", f"delete from {{points}} where id between {low} and {low + 5}",
            f"update {{points}} set x = x + {self.chance.randint(-8, 8) / 8} where id between {low} and {low + 3}",
            f"insert into {{points}} select * from {{points}} where id between {low} and {low + 2}",
            "delete from {points} where x > 12 and y > 8", "update {seeds} set x = x + 0.5 where x > 8",
            "update {seeds} set y = y - 0.125 where x < 8",
            "insert into {seeds} values (8.0, 8.0)", "delete from {seeds} where x = 8", "delete from {points}",
        ])  # fmt: skip
        if statement == "insert":
            sandbox.insert("points", POINTS, inserted)
        else:
            sandbox.sql(statement)
        return statement


def check(sandbox: Sandbox, view: View) -> None:
    """Compare the answer with Lloyd's algorithm, exactly, and the log with the points."""
    found = sandbox.read("select x, y from {points} where x is not null and y is not null and not isnan(x)").collect()
    seeds = [(row[0], row[1]) for row in sandbox.read("select * from {seeds}").collect()]
    points = [(row[0], row[1]) for row in found]
    assert set(rows(view)) == numeric_oracles.lloyd(points, seeds, STEPS)
    check_log(sandbox, view, Counter(points))


def table(sandbox: Sandbox, view: View, name: str) -> DataFrame:
    """One of the tables of a view, as of its last epoch."""
    generation = view.history()[-1].generation
    stored = sandbox.lake.table(sandbox.spark, f"{sandbox.folder}/warehouse/views/{view.name}/g{generation}/{name}")
    version = stored.version()
    assert version is not None
    return stored.at(version)


def check_log(sandbox: Sandbox, view: View, points: Counter[tuple[float, float]]) -> None:
    """The log is empty, or has all points, each with its nearest reference and a margin that is not too large."""
    logged = table(sandbox, view, "loop_1_points").collect()
    if not logged:
        return
    stored = (
        table(sandbox, view, "loop_1")
        .where(f"__step between 0 and {STEPS - 1}")
        .select("__step", "__number", "x", "y")
        .collect()
    )
    references = [{row[1]: (row[2], row[3]) for row in stored if row[0] == step} for step in range(STEPS)]
    found = Counter[tuple[float, float]]()
    for row in logged:
        point = (row[0], row[1])
        found[point] += row["__weight"]
        assert row["__margin"] == min(row["__margins"])
        for near, margin, centers in zip(row["__near"], row["__margins"], references, strict=True):
            far = sorted((math.dist(point, center), center, number) for number, center in centers.items())
            assert far[0][2] == near or math.isclose(far[0][0], math.dist(point, centers[near]))
            assert 0 <= margin <= (far[1][0] - far[0][0] if len(far) > 1 else math.inf) + 1e-12
    assert {point: number for point, number in found.items() if number} == dict(points)


def history(sandbox: Sandbox, seed: int, refreshes: int) -> Counter[str]:
    """One view over one random history; returns the paths of its table, and `near` where old points were read."""
    cloud, paths = Cloud(seed, KINDS[seed % len(KINDS)]), Counter[str]()
    sandbox.tune(**WAYS[seed % len(WAYS)])
    sandbox.source("points", POINTS, cloud.points(40))
    sandbox.source("seeds", SEEDS, CORNERS[: cloud.chance.randint(1, 4)])
    view = sandbox.view(queries.clusters)
    for number in range(refreshes):
        statement = cloud.change(sandbox) if number else ""
        with as_asked(view):
            report = view.refresh()
        paths[report.paths.get("loop_1", "")] += 1
        paths["near"] += any(report.rounds.get("loop_1", {}).get("points", []))
        try:
            check(sandbox, view)
            if number == refreshes - 1:
                confirm(view)
        except AssertionError as error:
            error.add_note(f"seed {seed}, refresh {number}, {statement}, {report.paths}, {report.rounds}")
            raise
    return paths
