"""`dagster dev`, for real: backfills launched by clicks and through GraphQL, and the view equal to batch afterwards."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from playwright.sync_api import expect
from pyspark.sql import SparkSession

from deltafold.pipelines import catalogue
from deltafold.spark.cache import cache_folder
from tests.dagster import sales
from tests.dagster.web.browser import Person, chromium, person
from tests.dagster.web.server import LOCATION, REPOSITORY, Server, dagster_dev, instance_of
from tests.night import night

LANDED = dg.AssetKey(["sales", "landed", "sales"])
DAYS = ["2013-01-01", "2013-01-02", "2013-01-03"]


@night
def test_a_backfill_in_the_pages_is_one_landing_and_one_refresh(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = sales.declare(tmp_path)
    for number, day in enumerate(DAYS):
        sales.drop(pipeline, day, [(number, "a", 10 * number), (100 + number, "b", 7)])
    with dagster_dev(tmp_path, tmp_path) as server:
        if chromium() is None:
            server.backfill(assetSelection=[{"path": LANDED.path}], partitionNames=DAYS)
            _await_backfill_of_the_landing_asset(server)
        else:
            with person(server, cache_folder("screenshots")) as someone:
                someone.backfills("/".join(LANDED.path), f"[{DAYS[0]}...{DAYS[2]}]")
                _await_backfill_of_the_landing_asset(server)
                _check_pages(someone)
        sales.drop(pipeline, DAYS[1], [(1, "a", 99)])  # a correction: one row changed, one removed
        sales.drop(pipeline, DAYS[2], [])
        _backfill_of_the_job(server)
    _, view = catalogue.open(pipeline, spark)
    assert [report.epoch for report in view.history()] == [1, 2]
    assert view.verify().ok
    assert sorted(map(tuple, view.answer().collect())) == [("a", 2, 99, 99), ("b", 1, 7, 7)]
    _check_events(tmp_path)
    if chromium() is None:
        pytest.skip("all but the pages was tested: for them, install Chromium (make browser)")


def _await_backfill_of_the_landing_asset(server: Server) -> None:
    """The user picked three days of the landing asset alone; the refresh follows by itself."""
    server.wait("the refresh ends", lambda: _ended(server, 2), 480)
    server.wait("the backfill ends", lambda: server.backfills() == ["COMPLETED_SUCCESS"], 240)
    landing, refresh = server.runs()
    assert _tags(landing)["dagster/asset_partition_range_start"] == DAYS[0]
    assert _tags(landing)["dagster/asset_partition_range_end"] == DAYS[2]
    assert _tags(refresh)["dagster/sensor_name"] == "sales_follow"


def _backfill_of_the_job(server: Server) -> None:
    """The user backfills two days of the job: one run lands both and refreshes."""
    repository = {"repositoryLocationName": LOCATION, "repositoryName": REPOSITORY}
    chosen = {"partitionSetName": "sales_update_partition_set", "repositorySelector": repository}
    server.backfill(selector=chosen, partitionNames=DAYS[1:])
    server.wait("its run ends", lambda: _ended(server, 3), 240)
    update = server.runs()[-1]
    assert update["jobName"] == "sales_update"
    assert _tags(update)["dagster/asset_partition_range_start"] == DAYS[1]


def _check_pages(someone: Person) -> None:
    """Three partitions are green, and the view's page tells what was done."""
    someone.sees_partitions("/".join(LANDED.path), materialized=3, failed=0)
    summary, explain = "epoch 1 applied, 6 changed rows", "lineage key (shop)"
    told = {"verdict": "applied", "epoch": "1", "plan": "incremental", "summary": summary, "explain": explain}
    someone.sees_metadata("sales", told)
    expect(someone.page.get_by_text("Latest check results")).to_be_visible()


def _ended(server: Server, count: int) -> bool:
    runs = server.runs()
    assert not [run for run in runs if run["status"] in ("FAILURE", "CANCELED")], json.dumps(runs, indent=1)
    return [run["status"] for run in runs] == ["SUCCESS"] * count


def _tags(run: dict[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["tags"]}


def _check_events(folder: Path) -> None:
    """What the pages show afterwards: partitions, the view's metadata, the check."""
    with instance_of(folder) as instance:
        assert instance.get_materialized_partitions(LANDED) == set(DAYS)
        shown = instance.get_latest_materialization_event(dg.AssetKey("sales"))
        assert shown is not None and shown.asset_materialization is not None
        told = shown.asset_materialization.metadata
        assert (told["epoch"].value, told["verdict"].value) == (2, "applied")
        checks = instance.event_log_storage.get_latest_asset_check_execution_by_key(
            [dg.AssetCheckKey(dg.AssetKey("sales"), "equals_batch")]
        )
        assert [check.status.value for check in checks.values()] == ["SUCCEEDED"]
