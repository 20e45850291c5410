"""All views of a warehouse refreshed as one pipeline: at one version of each source, a failure apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold.api import DatasetResult, LostSparkError, PipelineReport, Report, UsageError, View
from deltafold.lake.version_diff import Difference
from deltafold.refresh.pipeline_run import Dataset, RunState, refresh_datasets
from deltafold.refresh.sources.upstream import Progress
from tests.crash.points import Killed, watched
from tests.properties.graphs import confirm, declare
from tests.sandbox import DeltaSandbox, MemorySandbox, rows

SHOP = {
    "totals": "select k, sum(v) s, count(*) n from {t} group by k",
    "names": "select name, s, n from {totals} a join {d} b on a.k = b.k",
    "largest": "select max(v) m from {t}",
    "top": "select name, s, m from {names} cross join {largest} where s >= m",
}
STOPS = 12, 26


def refresh(sandbox: MemorySandbox, queries: Mapping[str, str] = SHOP) -> PipelineReport:
    report = sandbox.warehouse.refresh()
    confirm(sandbox, queries, report)
    return report


def outcomes(report: PipelineReport) -> dict[str, str]:
    return {dataset.name: dataset.outcome for dataset in report.datasets}


def shop(sandbox: MemorySandbox) -> dict[str, View]:
    sandbox.source("t", "k int, v int", [(1, 5), (1, 2), (2, 9)])
    sandbox.source("d", "k int, name string", [(1, "one"), (2, "two")])
    return declare(sandbox, SHOP)


def test_all_views_in_one_run(sandbox: MemorySandbox) -> None:
    views = shop(sandbox)
    steps: list[str] = []
    report = sandbox.warehouse.refresh(progress=steps.append)
    confirm(sandbox, SHOP, report)
    assert outcomes(report) == dict.fromkeys(SHOP, "refreshed")
    order = [dataset.name for dataset in report.datasets]
    assert order.index("totals") < order.index("names") < order.index("top") > order.index("largest")
    assert set(report["top"].reads) == {"names", "largest"}
    assert repr(report).startswith("<PipelineReport: 4 refreshed, ") and len(repr(report)) < 100
    assert {step for step in steps if " applied" in step} == {dataset.sentence for dataset in report.datasets}
    assert any(step.startswith("totals: ") for step in steps)
    assert PipelineReport.from_json(report.to_json()) == report
    assert report.jobs == sum(view.history()[-1].jobs for view in views.values()) > 0

    sandbox.sql("update {d} set name = 'ONE' where k = 1")
    assert outcomes(refresh(sandbox)) == {
        "totals": "nothing to do", "largest": "nothing to do", "names": "refreshed", "top": "nothing to do",
    }  # fmt: skip
    sandbox.sql("insert into {t} values (1, 90)")
    report = sandbox.warehouse.refresh("names", full=["largest"])
    assert outcomes(report) == dict.fromkeys(["totals", "names", "largest"], "refreshed")
    assert report["largest"].report and report["largest"].report.verdict == "rebuilt"
    assert views["top"].versions["names/totals/t"] == 0
    refresh(sandbox)
    assert [len(view.history()) for view in views.values()] == [2, 3, 2, 2]

    views["top"].drop()
    assert "top" not in outcomes(sandbox.warehouse.refresh())
    with pytest.raises(UsageError, match=r"view top: it is not declared .* Choose one of: totals, names, largest"):
        sandbox.warehouse.refresh("top")
    assert sandbox.opened("empty").refresh().sentence.startswith("no dataset, 0 jobs")


@pytest.mark.parametrize("reads", ["small"], indirect=True)
def test_the_change_of_a_source_is_read_once_for_all_views(
    sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the columns that any of them reads; one that is behind the others reads its own change."""
    queries = {
        "sums": "select k, sum(v) s from {t} group by k",
        "largest": "select max(w) hi, count(*) n from {t}",
        "named": "select a.v, b.name from {t} a join {d} b on a.k = b.k",
        "above": "select a.k, a.s, b.w from {sums} a join {t} b on a.k = b.k",
        "alone": "select count(*) n from {d}",
    }
    sandbox.source("t", "k int, v int, w int, x int", [(1, 5, 0, 0), (1, 2, 1, 0), (2, 9, 2, 0)])
    sandbox.source("d", "k int, name string", [(1, "one"), (2, "two")])
    declare(sandbox, queries)
    refresh(sandbox, queries)
    place, read, frame = sandbox.table("t").place, list[list[str]](), Difference.frame

    def counting(self: Difference, columns: Sequence[str], *, consolidate: bool) -> DataFrame:
        if self.after.table.place == place:
            read.append([*columns])
        return frame(self, columns, consolidate=consolidate)

    monkeypatch.setattr(Difference, "frame", counting)
    for changes in (
        ["insert into {t} values (1, 70, 7, 1), (3, 1, 1, 1)"],
        ["update {t} set v = v + 1, x = 5 where k = 1", "delete from {t} where k = 2"],
    ):
        for change in changes:
            sandbox.sql(change)
        read.clear()
        report = refresh(sandbox, queries)
        assert report.ok and report.shared[place] >= 4
        assert read == [["k", "v", "w"]]
    sandbox.sql("insert into {t} values (2, 2, 2, 2)")
    sandbox.warehouse.refresh("largest")
    sandbox.sql("update {t} set w = 9 where k = 3")
    read.clear()
    refresh(sandbox, queries)
    assert len(read) == 2


def test_a_column_of_another_type_concerns_its_readers_alone(delta: DeltaSandbox) -> None:
    """Protects from rows of two versions that are read at once with a column whose types cannot be united."""
    delta.source("t", "k int, v int", [(1, 5), (2, 9)])
    counts = delta.view("select k, count(*) n from t group by k", "counts")
    values = delta.view("select v, count(*) n from t group by v", "values", on_change="rebuild")
    delta.warehouse.refresh()
    delta.sql("create or replace table {t} using delta as select 1 k, array('abc') v")
    assert outcomes(delta.warehouse.refresh()) == {"counts": "refreshed", "values": "refreshed"}
    assert rows(counts) == [(1, 1)]
    assert rows(values) == [(["abc"], 1)]


def test_a_source_that_changes_during_a_run_is_seen_by_the_next(sandbox: MemorySandbox) -> None:
    """Every dataset is refreshed to the versions of the start, also the one that reads the source itself."""
    queries = SHOP | {"late": "select a.k, a.v, m from {t} a cross join {largest}"}
    shop(sandbox)
    declare(sandbox, {"late": queries["late"]})
    done: list[str] = []

    def changing(step: str) -> None:
        if " epoch " in step:
            done.append(step)
            sandbox.sql(f"insert into {{t}} values (1, {100 * len(done)}), (3, 1)")

    for first in (True, False):
        version = sandbox.table("t").version()
        report = sandbox.warehouse.refresh(progress=changing)
        confirm(sandbox, queries, report)
        assert report.ok and report.versions[sandbox.table("t").place] == version
        pinned = {name: view.versions for name, view in sandbox.warehouse.views.items()}
        assert {v for each in pinned.values() for path, v in each.items() if path.endswith("t")} == {version}
        assert len(done) == len(queries) * (1 if first else 2)
    assert refresh(sandbox, queries).ok
    assert (1, 100 * len(done), 100 * len(done)) in rows(sandbox.warehouse.views["late"])
    assert refresh(sandbox, queries).counts == {"nothing to do": len(queries)}


def test_a_failure_stops_what_reads_it_and_nothing_else(sandbox: MemorySandbox) -> None:
    """A refresh that fails, a query that is refused or cannot be analysed, a source without data, a cycle."""
    sandbox.source("t", "k int, v int", [(1, 0), (1, 2), (2, 9)])
    sandbox.declare("nothing")
    queries = {
        "good": "select k, count(*) n from {t} group by k",
        "broken": "select k, sum(10 / v) s from {t} group by k",
        "above": "select k, s from {broken} join {good} using (k)",
        "top": "select count(*) c from {above}",
        "refused": "select k, rand() r from {t}",
        "reads_refused": "select k from {refused}",
        "wrong": "select missing from {t}",
        "empty": "select count(*) c from {nothing}",
        "last": "select sum(n) s from {good}",
    }
    declare(sandbox, queries)
    report = sandbox.warehouse.refresh()
    assert not report.ok
    assert report.counts == {"refreshed": 2, "failed": 4, "skipped": 3}
    failed = {dataset.name: dataset for dataset in report.datasets if dataset.outcome == "failed"}
    assert {name: dataset.error_type for name, dataset in failed.items()} == {
        "broken": "EvaluationError", "refused": "RefusedError", "wrong": "QueryError", "empty": "SourceError",
    }  # fmt: skip
    assert report["top"].because == report["above"].because == ("broken",)
    assert report["top"].sentence == "top: skipped because broken failed"
    assert report["empty"].sentence.startswith("empty: failed with SourceError: source nothing has no data")
    assert rows(sandbox.warehouse.views["last"]) == [(3,)]
    assert PipelineReport.from_json(report.to_json()) == report

    sandbox.sql("delete from {t} where v = 0")
    sandbox.insert("nothing", "a int", [(1,)])
    sandbox.view("select k from t", "wrong")
    report = sandbox.warehouse.refresh()
    assert outcomes(report) == dict.fromkeys(queries, "refreshed") | {
        "refused": "failed", "reads_refused": "skipped",
    }  # fmt: skip
    assert rows(sandbox.warehouse.views["top"]) == [(2,)]


def test_views_that_read_each_other_in_a_cycle_fail(sandbox: MemorySandbox) -> None:
    """By a redefinition; what does not read them is refreshed."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    declare(sandbox, {"a": "select k from {t}", "b": "select k from {a}", "c": "select v from {t}"})
    sandbox.view("select k from b", "a")
    report = sandbox.warehouse.refresh()
    assert outcomes(report) == {"a": "failed", "b": "failed", "c": "refreshed"}
    assert ": they read each other in a cycle. " in report["a"].error


def test_a_view_of_another_warehouse_is_part_of_the_run(sandbox: MemorySandbox) -> None:
    sandbox.source("t", "k int, v int", [(1, 1)])
    other = sandbox.opened("other")
    sandbox.warehouse, own = other, sandbox.warehouse
    sandbox.declare("t")
    below = sandbox.view("select k, sum(v) s from t group by k", "totals")
    sandbox.warehouse = own
    own.source("below", below)
    sandbox.view("select s from below", "totals")
    report = own.refresh()
    assert outcomes(report) == {"other/totals": "refreshed", "totals": "refreshed"}
    assert report["totals"].reads == ("other/totals",)
    assert not other.refresh().counts.get("refreshed")


def test_a_run_that_was_killed_anywhere_is_finished_by_the_next(sandbox: MemorySandbox) -> None:
    views = shop(sandbox)
    for number, stop in enumerate(STOPS):
        sandbox.sql(f"insert into {{t}} values (1, {number}), ({number}, 20)")
        sandbox.sql(f"update {{d}} set name = 'one{number}' where k = 1")
        with pytest.raises(Killed), watched(stop):
            sandbox.warehouse.refresh(threads=1)  # another thread would not be killed
        sandbox.sql(f"delete from {{t}} where v = {number}")
        assert refresh(sandbox).ok
    assert all(view.verify().ok for view in views.values())


def test_independent_views_side_by_side_on_delta(delta: DeltaSandbox, long: bool) -> None:
    """Two at a time, of three that wait for nothing; the same rows as one after the other, and their own jobs."""
    delta.source("t", "k int, v int", [(1, 5), (1, 2), (2, 9)])
    queries = {f"wide{n}": f"select k, v + {n} v from {{t}} where v > {n}" for n in range(3)}
    queries |= {"sums": "select k, sum(v) s from {wide1} group by k", "all": "select a.k, s from {sums} a, {wide2} b"}
    views = declare(delta, queries)
    changes = ("insert into {t} values (3, 4), (3, 1)", "delete from {t} where v = 9")
    for change in changes if long else changes[:1]:
        delta.sql(change)
        report = delta.warehouse.refresh(threads=2)
        confirm(delta, queries, report)
        assert report.counts == {"refreshed": len(queries)}
        assert {name: view.history()[-1].jobs for name, view in views.items()} == {
            dataset.name: dataset.report.jobs for dataset in report.datasets if dataset.report
        }


def test_the_end_of_spark_ends_the_run() -> None:
    """Everything else that a dataset raises is in the report; a table that cannot be read fails its readers alone."""
    ran: list[str] = []

    def dataset(name: str, error: Exception | None = None, *reads: str) -> Dataset:
        def run(state: RunState, progress: Progress | None) -> Report:
            ran.append(name)
            if error is not None:
                raise error
            return Report(view=name, epoch=1, generation=1, verdict="applied", sentence=name)

        broken: Any = SimpleNamespace(version=lambda: 1 / 0)
        return Dataset(name=name, folder=Path(name), reads=tuple(map(Path, reads)), refresh=run, tables={"t": broken})

    def refreshed(*datasets: Dataset) -> dict[str, str]:
        return outcomes(refresh_datasets(datasets, None, cast("SparkSession", None), 1))

    failing = dataset("a", OSError("disk")), dataset("b", None, "a"), dataset("c")
    assert refreshed(*failing) == {"a": "failed", "b": "skipped", "c": "refreshed"}
    assert ran == ["a", "c"]
    with pytest.raises(LostSparkError):
        refreshed(dataset("a", LostSparkError("Spark ended: x. Y.")), dataset("b", None, "a"))
    assert ran == ["a", "c", "a"]
    assert refreshed(dataset("a", None, "b"), dataset("b", None, "a"), dataset("c", None, "b"), dataset("d")) == {
        "a": "failed", "b": "failed", "c": "skipped", "d": "refreshed",
    }  # fmt: skip


def test_results_without_a_report_are_data() -> None:
    failed = DatasetResult(name="a", outcome="failed", error="a: b. C.", error_type="SourceError")
    skipped = DatasetResult(name="b", outcome="skipped", reads=("a",), because=("a",))
    report = PipelineReport(datasets=(failed, skipped))
    assert (report.ok, report.counts) == (False, {"failed": 1, "skipped": 1})
    with pytest.raises(KeyError):
        report["c"]
