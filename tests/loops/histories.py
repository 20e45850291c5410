"""Run one view over a random history of a graph, and compare each answer with a textbook oracle.

Every epoch mixes insertions and deletions on all inputs; sizes and limits vary, so that every path is taken.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from deltafold.api import Report, View
from tests.loops.cases import Case, SourceRows, rows
from tests.loops.references.graphs import Graph, Graphs
from tests.sandbox import Sandbox, as_asked, confirm

WAYS: list[dict[str, Any]] = [
    {},
    {"rewrite_files": 0, "bucket_bytes": 1, "buckets": 3},
    {"local_bytes": 0, "local_rows": 0},
    {"restart_rows": 3, "restart_share": 0.3},
    {"local_bytes": 0, "local_rows": 0, "rewrite_files": 0, "bucket_bytes": 1, "buckets": 2},
]

Refresh = Callable[[Sandbox, View], tuple[View, Report]]
"""Refreshes a view; returns it, or the same as another process opened it, and the report."""


def refresh_once(sandbox: Sandbox, view: View) -> tuple[View, Report]:
    """Refresh as most runs do."""
    return view, view.refresh()


def history(
    sandbox: Sandbox, case: Case, seed: int, refreshes: int, refresh: Refresh = refresh_once, graphs: int = 1
) -> None:
    """One view over one random history; graphs: of as many that have nothing in common, which all change at once."""
    chance = random.Random(seed)
    members = [Graph(chance, chance.randint(3, 7), case.lengths, case.acyclic, bool(seed % 2)) for _ in range(graphs)]
    sandbox.tune(**WAYS[seed % len(WAYS)])
    schema = "a int, b int, w int" if case.lengths else "a int, b int"
    sandbox.source("edges", schema, [])
    sandbox.source("starts", "x int", [])
    view = sandbox.view(case.query)
    for number, (edges, starts) in enumerate(Graphs(members).histories(refreshes)):
        sandbox.insert("edges", schema, rows(edges, 2), "overwrite")
        sandbox.insert("starts", "x int", rows(starts, 1), "overwrite")
        with as_asked(view):
            view, report = refresh(sandbox, view)
        try:
            check(view, case, SourceRows(edges, starts), number == refreshes - 1)
        except AssertionError as error:
            error.add_note(f"seed {seed}, refresh {number}, {report.paths}, {report.rounds}, {edges}, {starts}"[:4000])
            raise


def check(view: View, case: Case, given: SourceRows, last: bool) -> None:
    """Compare with the oracle; in the end, and where there is none, with Spark's batch."""
    if case.expected is not None:
        answer = Counter(tuple(row) for row in view.answer().collect())
        expected = case.expected(given)
        assert answer == expected, f"missing {expected - answer}, too many {answer - expected}"
    if last or case.expected is None:
        confirm(view)
