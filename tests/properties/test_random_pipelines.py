"""Any graph of views, any history, any failures: each dataset of a run equals recomputing the graph at its versions."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from deltafold.api import PipelineReport
from tests.crash.points import Killed
from tests.night import night
from tests.properties.graphs import LARGE, SMALL, SOURCES, confirm, declare, graphs
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, Step

SCHEMA = "k int, v bigint"
BY_NIGHT = settings().max_examples >= 100

rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=4)
sources = st.sampled_from(SOURCES)
steps = st.one_of(
    st.tuples(st.just("insert"), sources, rows),
    st.tuples(st.just("delete"), sources, st.sampled_from(["k = 1", "v > 3", "k = 2 and v < 2"])),
    st.tuples(st.just("update"), sources, st.just({"v": "v + 1"}), st.sampled_from(["k = 0", "v = 2"])),
)


@dataclass(frozen=True)
class Run:
    """Changes of the sources, then a run; what happens when it comes to a step: a failure, a kill, another change."""

    before: Sequence[Step]
    what: str
    at: int
    during: Step
    threads: int


runs = st.builds(
    Run,
    before=st.lists(steps, min_size=1, max_size=3),
    what=st.sampled_from(["fail", "fail", "kill", "change"]),
    at=st.integers(1, 60 if BY_NIGHT else 25),
    during=steps,
    threads=st.integers(1, 3),
)

histories = st.lists(runs, min_size=2, max_size=3)


@dataclass
class Steps:
    """The steps of a run, which do something at one of them; failed: the dataset that failed for it."""

    at: int
    do: Callable[[], None]
    passed: int = 0
    failed: set[str] = field(default_factory=set[str])

    def __call__(self, sentence: str) -> None:
        name, _, step = sentence.partition(": ")
        within = not any(word in step for word in ("epoch", "no change", "nothing to do", "skipped", "failed"))
        self.passed += within
        if within and self.passed == self.at:
            self.failed.add(name)
            self.do()


def fail() -> None:
    raise RuntimeError("injected")


def kill() -> None:
    raise Killed


@settings(max_examples=1000 if BY_NIGHT else 1)
@given(graphs(LARGE if BY_NIGHT else SMALL), histories)
def test_pipelines_equal_recomputing_them(spark: SparkSession, queries: dict[str, str], history: list[Run]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(MemorySandbox(spark, Path(folder)), queries, history)


@night
@settings(max_examples=100)
@given(graphs(LARGE), histories)
def test_pipelines_on_delta_equal_recomputing_them(
    spark: SparkSession, queries: dict[str, str], history: list[Run]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(DeltaSandbox(spark, Path(folder)), queries, history)


def check(sandbox: Sandbox, queries: dict[str, str], history: list[Run]) -> None:
    """Each run, and then one without a failure, which finishes what the others left."""
    note("\n".join(f"{name}: {query}" for name, query in queries.items()))
    sandbox.sources({name: (SCHEMA, [(0, 1), (1, 2), (1, 5), (2, 0)]) for name in SOURCES})
    declare(sandbox, queries)
    for run in history:
        sandbox.do(*run.before)
        perform(sandbox, queries, run)
    report = sandbox.warehouse.refresh()
    assert report.ok, report
    confirm(sandbox, queries, report)


def perform(sandbox: Sandbox, queries: dict[str, str], run: Run) -> None:
    """Run the pipeline once, and check what it refreshed and what it skipped."""
    do = {"fail": fail, "kill": kill, "change": lambda: sandbox.do(run.during)}[run.what]
    at = Steps(run.at, do)
    latest = {sandbox.table(name).place: sandbox.table(name).version() for name in SOURCES}
    try:
        report = sandbox.warehouse.refresh(progress=at, threads=run.threads)
    except Killed:
        assert run.what == "kill"
        return
    assert all(latest[place] == version for place, version in report.versions.items())
    confirm(sandbox, queries, report)
    failed = at.failed if run.what == "fail" else set[str]()
    assert {dataset.name for dataset in report.datasets if dataset.outcome == "failed"} == failed
    check_skipped(report, failed)


def check_skipped(report: PipelineReport, failed: set[str]) -> None:
    """What reads a failed dataset, at any depth, is skipped, and nothing else."""
    stopped = set(failed)
    for dataset in report.datasets:
        if stopped & set(dataset.reads):
            stopped.add(dataset.name)
            assert dataset.because == tuple(sorted(failed)), dataset
    assert {dataset.name for dataset in report.datasets if not dataset.ok} == stopped
