"""A view follows its sources: what the follow sensor asks for, tick by tick, given what runs have reported."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from deltafold.dagster import metadata
from deltafold.pipelines.catalogue import Pipeline
from tests.dagster import sales
from tests.dagster.shown import located

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
LANDED = dg.AssetKey(["sales", "landed", "sales"])


class Ticks:
    """The follow sensor of a pipeline; `landed` and `refreshed` report what runs would."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, pipeline: Pipeline | None = None) -> None:
        self.instance = instance
        self.defined = located(pipeline or sales.declare(folder))
        self.asked: set[str | None] = set()

    def landed(self, version: int, *days: str) -> None:
        for day in days:
            event = dg.AssetMaterialization(LANDED, partition=f"2013-01-{day}", metadata={"version": version})
            self.instance.report_runless_asset_event(event)

    def refreshed(self, version: int, source: str = "sales") -> None:
        told = {metadata.CONSUMED: {source: version}}
        self.instance.report_runless_asset_event(dg.AssetMaterialization(dg.AssetKey("sales"), metadata=told))

    def tick(self) -> str | None:
        """Why nothing is asked for; None when a refresh is, for the first time with its run key."""
        context = dg.build_sensor_context(self.instance, repository_def=self.defined.get_repository_def())
        found = self.defined.resolve_sensor_def("sales_follow").evaluate_tick(context)
        if not found.run_requests:
            return found.skip_message
        [request] = found.run_requests
        if request.run_key in self.asked:  # Dagster drops such a request
            return "asked for before"
        self.asked.add(request.run_key)
        return None


@pytest.fixture
def ticks(tmp_path: Path) -> Iterator[Ticks]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        yield Ticks(tmp_path, instance)


UP_TO_DATE = "sales is up to date with its sources."


def test_one_refresh_follows_a_landing_of_many_partitions(ticks: Ticks) -> None:
    assert ticks.tick() == "Nothing that sales reads has been landed, or seen by Dagster, yet."
    ticks.landed(0, "01", "02", "03")
    assert ticks.tick() is None
    ticks.refreshed(0)
    assert ticks.tick() == UP_TO_DATE


def test_a_landing_during_a_refresh_is_followed_by_another(ticks: Ticks) -> None:
    ticks.landed(0, "01")
    assert ticks.tick() is None
    ticks.landed(1, "02")
    ticks.refreshed(0)  # from the version that was pinned before
    assert ticks.tick() is None
    ticks.refreshed(1)
    assert ticks.tick() == UP_TO_DATE


def test_a_refresh_that_failed_is_asked_for_again_when_something_comes(ticks: Ticks) -> None:
    ticks.landed(0, "01")
    assert ticks.tick() is None
    assert ticks.tick() == "asked for before"
    ticks.landed(1, "02")
    assert ticks.tick() is None


def test_a_source_that_the_query_does_not_read_is_not_waited_for(ticks: Ticks) -> None:
    ticks.refreshed(5, "another")
    ticks.landed(0, "01")
    assert ticks.tick() == UP_TO_DATE


@pytest.mark.parametrize(
    ("job", "selection"), [("sales_update", None), ("sales_refresh", None), ("__ASSET_JOB", {LANDED})]
)
def test_it_waits_for_runs_of_the_pipeline(ticks: Ticks, job: str, selection: set[dg.AssetKey] | None) -> None:
    ticks.landed(0, "01")
    run = ticks.instance.create_run_for_job(
        ticks.defined.resolve_implicit_global_asset_job_def() if selection else ticks.defined.resolve_job_def(job),
        asset_selection=selection and frozenset(selection),
        status=dg.DagsterRunStatus.STARTED,
    )
    assert ticks.tick() == f"sales is behind sales; run {run.run_id} must end first."
    ticks.instance.report_run_failed(run)
    assert ticks.tick() is None


def test_it_waits_for_a_backfill_of_the_landing_asset(ticks: Ticks) -> None:
    ticks.landed(0, "01")
    backfill = PartitionBackfill(
        "b1",
        status=BulkActionStatus.REQUESTED,
        from_failure=False,
        tags={},
        backfill_timestamp=0.0,
        asset_selection=[LANDED],
        serialized_asset_backfill_data="{}",
    )
    ticks.instance.add_backfill(backfill)
    assert ticks.tick() == "sales is behind sales; backfill b1 must end first."
    ticks.instance.update_backfill(backfill.with_status(BulkActionStatus.COMPLETED_SUCCESS))
    assert ticks.tick() is None


@pytest.mark.parametrize("shown", [{}, {"epoch": 3}, {"version": 5}, {"generation": 1, "epoch": 3}])
def test_an_asset_of_the_users_is_followed_by_the_log_of_its_table(tmp_path: Path, shown: dict[str, int]) -> None:
    """Protects from a dataset that never follows an asset without a version, or takes its metadata for Delta's."""
    pipeline = sales.declare(tmp_path, besides=sales.BESIDES)
    sales.commit(pipeline.folder / "rates", 5)
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        ticks = Ticks(tmp_path, instance, pipeline)
        ticks.refreshed(5, "rates")
        rates = dg.AssetMaterialization("rates", metadata=shown)
        instance.report_runless_asset_event(rates)
        assert ticks.tick() == UP_TO_DATE
        sales.commit(pipeline.folder / "rates", 6)
        instance.report_runless_asset_event(rates)
        assert ticks.tick() is None
