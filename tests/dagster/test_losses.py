"""A view that is rebuilt because a source was lost: Dagster warns, and the run goes on."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from deltafold.cli.orchestrator import Refreshed
from deltafold.dagster import runless
from deltafold.dagster.dataset_step import LOSS_CHECK
from deltafold.lake.protocol import Lake
from tests.dagster import sales
from tests.dagster.test_runs import DagsterSandbox, days

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore:view sales. it is rebuilt")

VIEW = dg.AssetKey("sales")


def warned(found: Sequence[dg.AssetCheckEvaluation]) -> list[tuple[bool, dg.AssetCheckSeverity]]:
    """The results of the check in a run."""
    return [(each.passed, each.severity) for each in found if each.check_name == LOSS_CHECK]


def test_a_rebuild_for_a_lost_source_is_a_warning(tmp_path: Path, spark: SparkSession, in_memory: Lake) -> None:
    """In the run that does it, and where a command has done it; the next refresh is green again."""
    bench = DagsterSandbox(tmp_path, spark, f"{sales.DAILY}on_lost: rebuild\n")
    sales.drop(bench.pipeline, "2013-01-01", [(1, "n", 2), (2, "s", 3)])
    done = bench.run("update", days("01", "01"))
    assert done.success and warned(done.get_asset_check_evaluations()) == [(True, dg.AssetCheckSeverity.WARN)]
    for part in ("sources", "landed"):
        shutil.rmtree(Path(bench.pipeline.warehouse) / part / "sales")
    sales.drop(bench.pipeline, "2013-01-01", [(1, "n", 2), (2, "s", 4)])
    done = bench.run("update", days("01", "01"))
    assert done.success and warned(done.get_asset_check_evaluations()) == [(False, dg.AssetCheckSeverity.WARN)]
    assert bench.answer() == [("n", 1, 2, 2), ("s", 1, 4, 4)]
    runless.report_to(bench.instance, [Refreshed(bench.pipeline, bench.view(), bench.view().history()[-1])])
    key = dg.AssetCheckKey(VIEW, LOSS_CHECK)
    record = bench.instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert record.event is not None and record.event.dagster_event is not None
    said = record.event.dagster_event.asset_check_evaluation_data
    assert not said.passed and "was dropped and created again" in (said.description or "")
    assert warned(bench.run("refresh").get_asset_check_evaluations()) == [(True, dg.AssetCheckSeverity.WARN)]


def test_only_a_view_that_is_rebuilt_by_itself_has_the_check(tmp_path: Path, spark: SparkSession) -> None:
    graph = DagsterSandbox(tmp_path, spark).defined.resolve_asset_graph()
    assert dg.AssetCheckKey(VIEW, LOSS_CHECK) not in graph.asset_check_keys
