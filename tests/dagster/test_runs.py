"""Runs in this process: what is landed, refreshed, shown and checked, and how a run fails."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

import deltafold.dagster as df
from deltafold.api import View
from deltafold.dagster.partitions import RANGE_END, RANGE_START
from deltafold.dagster.resources import SparkResource
from deltafold.dagster.task_runner import CRASHES
from deltafold.lake.protocol import Lake
from deltafold.pipelines import catalogue
from tests.dagster import sales
from tests.dagster.shown import located
from tests.night import night
from tests.sandbox import maintained_path

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

LANDED = dg.AssetKey(["sales", "landed", "sales"])
VIEW = dg.AssetKey("sales")


class DagsterSandbox:
    """A pipeline with its definitions and an instance that forgets."""

    def __init__(self, folder: Path, spark: SparkSession, more: str = sales.DAILY) -> None:
        self.pipeline = sales.declare(folder, more)
        self.spark = spark
        self.instance = dg.DagsterInstance.ephemeral()
        self.defined = located(self.pipeline)

    def run(self, job: str, tags: Mapping[str, str] | None = None, **more) -> dg.ExecuteInProcessResult:
        chosen = self.defined.resolve_job_def(f"sales_{job}")
        return chosen.execute_in_process(instance=self.instance, tags=tags, raise_on_error=False, **more)

    def view(self) -> View:
        return catalogue.open(self.pipeline, self.spark)[1]

    def answer(self) -> list[tuple]:
        return sorted(tuple(row) for row in self.view().answer().collect())

    def told(self, key: dg.AssetKey) -> Mapping[str, dg.MetadataValue]:
        """The metadata of the latest materialisation."""
        event = self.instance.get_latest_materialization_event(key)
        assert event is not None and event.asset_materialization is not None
        return event.asset_materialization.metadata


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> DagsterSandbox:
    return DagsterSandbox(tmp_path, spark)


@pytest.fixture
def quick(in_memory: Lake, bench: DagsterSandbox) -> DagsterSandbox:
    """The same with tables in memory, for what does not depend on Delta."""
    return bench


def days(first: str, last: str) -> dict[str, str]:
    return {RANGE_START: f"2013-01-{first}", RANGE_END: f"2013-01-{last}"}


def sentence(result: dg.ExecuteInProcessResult) -> str:
    [failed] = result.get_step_failure_events()
    assert failed.step_failure_data.user_failure_data is not None, failed.step_failure_data.error
    return failed.step_failure_data.user_failure_data.description or ""


def test_days_come_one_is_corrected_and_nothing_is_new(bench: DagsterSandbox) -> None:
    sales.drop(bench.pipeline, "2013-01-01", [(1, "a", 5), (2, "b", 3)])
    sales.drop(bench.pipeline, "2013-01-02", [(3, "a", 9)])
    assert bench.run("update", days("01", "02")).success
    assert bench.answer() == [("a", 2, 14, 9), ("b", 1, 3, 3)]
    assert bench.instance.get_materialized_partitions(LANDED) == {"2013-01-01", "2013-01-02"}

    sales.drop(bench.pipeline, "2013-01-02", [(3, "a", 2), (4, "c", 1)])
    corrected = bench.run("update", partition_key="2013-01-02")
    assert corrected.success
    assert [check.passed for check in corrected.get_asset_check_evaluations()] == [True]
    assert bench.answer() == [("a", 2, 7, 5), ("b", 1, 3, 3), ("c", 1, 1, 1)]
    before = bench.told(VIEW)
    assert (before["epoch"].value, before["verdict"].value) == (2, "applied")

    assert bench.run("refresh").success
    assert bench.told(VIEW)["verdict"].value == "nothing to do"
    assert len(bench.view().history()) == 2


def test_a_view_that_had_nothing_to_do_keeps_its_data_version(quick: DagsterSandbox) -> None:
    sales.drop(quick.pipeline, "2013-01-01", [(1, "a", 5)])
    first = quick.run("update", partition_key="2013-01-01")
    second = quick.run("refresh")
    versions = [
        (event.materialization.tags or {})["dagster/data_version"]
        for result in (first, second)
        for event in result.get_asset_materialization_events()
        if event.asset_key == VIEW
    ]
    assert len(versions) == 2
    assert versions[0] == versions[1]


def test_a_materialised_view_tells_what_it_cost_and_what_it_is(bench: DagsterSandbox) -> None:
    sales.drop(bench.pipeline, "2013-01-01", [(1, "a", 5), (2, "b", 3)])
    assert bench.run("update", partition_key="2013-01-01").success
    told = bench.told(VIEW)
    assert told["rows in change"].value == 2
    assert told["groups"].value == 2
    assert told["dagster/row_count"].value == 2
    schema = told["dagster/column_schema"].value
    assert isinstance(schema, dg.TableSchema)
    assert [(column.name, column.type) for column in schema.columns] == [
        ("shop", "string"),
        ("sales", "bigint"),
        ("total", "bigint"),
        ("best", "int"),
    ]
    assert "sales" in str(told["explain"].value)
    assert str(told["cost"].value).startswith("![sales: seconds of the last 1 refreshes](data:image/png;base64,")
    assert {"jobs", "commits", "seconds", "versions", "plan", "dagster/uri"} <= told.keys()
    assert "lineage key" in str(told["tables"].value)
    assert bench.told(LANDED)["partition"].value == "landed"
    assert bench.told(LANDED)["rows landed"].value == 2


def test_the_second_load_of_the_code_knows_the_columns(quick: DagsterSandbox) -> None:
    from deltafold.pipelines import descriptions

    sales.drop(quick.pipeline, "2013-01-01", [(1, "a", 5)])
    assert quick.run("update", partition_key="2013-01-01").success
    described = descriptions.load_description(quick.pipeline)
    assert described is not None
    shown = located(quick.pipeline).resolve_asset_graph().get(VIEW).metadata
    assert shown["dagster/column_schema"] == quick.told(VIEW)["dagster/column_schema"]
    assert shown["dagster/column_lineage"] == quick.told(VIEW)["dagster/column_lineage"]


def test_a_run_of_what_changed_lands_just_that(quick: DagsterSandbox) -> None:
    for number, day in enumerate(("01", "02", "05"), start=1):
        sales.drop(quick.pipeline, f"2013-01-{day}", [(number, "a", number)])
    assert quick.run("update", days("01", "05")).success
    version = quick.told(LANDED)["version"].value
    shutil.rmtree(quick.pipeline.folder / "data" / "day=2013-01-02")
    sales.drop(quick.pipeline, "2013-01-05", [(3, "a", 8)])
    config = {"ops": {"sales__landed__sales": {"config": {"changed_only": True}}}}
    assert quick.run("update", days("02", "05"), run_config=config).success
    told = quick.told(LANDED)
    assert (told["partitions landed"].value, told["partitions removed"].value) == (1, 1)
    assert told["version"].value != version
    assert quick.answer() == [("a", 2, 9, 8)]


def test_a_range_may_have_days_without_files(quick: DagsterSandbox) -> None:
    for number, day in enumerate(("01", "02", "05"), start=1):
        sales.drop(quick.pipeline, f"2013-01-{day}", [(number, "a", number)])
    assert quick.run("update", days("01", "05")).success
    shutil.rmtree(quick.pipeline.folder / "data" / "day=2013-01-02")
    assert quick.run("update", days("01", "03")).success
    filtered = dg.AssetRecordsFilter(LANDED, asset_partitions=["2013-01-03"])
    [record] = quick.instance.fetch_materializations(filtered, limit=1).records
    assert record.asset_materialization is not None
    assert record.asset_materialization.metadata["partition"].value == "empty: it has no files"
    assert quick.told(LANDED)["partitions removed"].value == 1
    assert quick.answer() == [("a", 2, 4, 3)]


def test_weeks_land_their_days_and_keep_the_version_of_what_did_not_change(quick: DagsterSandbox) -> None:
    """Protects from a week of which one day is landed, and from automation that follows what did not change."""
    weeks = sales.Partitioned(dg.WeeklyPartitionsDefinition("2012-12-30", end_date="2013-01-27"))
    landings = df.landing_assets(quick.pipeline.folder.parent, translator=weeks)
    defs = dg.Definitions(landings, resources={"deltafold": SparkResource()})
    job = defs.resolve_implicit_global_asset_job_def()

    def land(first: str, last: str) -> dict[str, tuple[str, object]]:
        """Land a range, and return the data versions of its partitions then, and what was done."""
        done = job.execute_in_process(instance=quick.instance, tags={RANGE_START: first, RANGE_END: last})
        made = [event.materialization for event in done.get_asset_materialization_events()]
        shown = {str(each.partition): each.metadata["partition"].value for each in made}
        return {
            str(each.partition): ((each.tags or {})["dagster/data_version"], shown[str(each.partition)])
            for each in made
        }

    def unchanged(before: dict[str, tuple[str, object]], after: dict[str, tuple[str, object]]) -> set[str]:
        return {week for week in before if before[week][0] == after[week][0]}

    for number, day in enumerate(("01", "02", "07", "15"), start=1):
        sales.drop(quick.pipeline, f"2013-01-{day}", [(number, "a", number)])
    first = land("2012-12-30", "2013-01-13")
    assert first["2012-12-30"][1] == "2 landed, 3 empty" and first["2013-01-06"][1] == "1 landed, 6 empty"
    sales.drop(quick.pipeline, "2013-01-08", [(5, "a", 5)])
    second = land("2012-12-30", "2013-01-20")
    assert unchanged(first, second) == {"2012-12-30", "2013-01-13"}
    assert second["2013-01-13"][1] == "1 unchanged, 6 empty"
    shutil.rmtree(quick.pipeline.folder / "data" / "day=2013-01-02")
    third = land("2012-12-30", "2013-01-20")
    assert unchanged(second, third) == {"2013-01-06", "2013-01-13", "2013-01-20"}
    assert quick.run("refresh").success and quick.answer() == [("a", 4, 13, 5)]


@night
def test_a_range_may_have_a_day_whose_folder_was_respelt(quick: DagsterSandbox) -> None:
    declaration = quick.pipeline.folder / "pipeline.yaml"
    declaration.write_text(declaration.read_text().replace("day STRING", "day DATE"))
    quick.pipeline = catalogue.load("sales", quick.pipeline.folder.parent)
    quick.defined = located(quick.pipeline)
    for number, day in enumerate(("01", "02"), start=1):
        sales.drop(quick.pipeline, f"2013-01-{day}", [(number, "a", number)])
    assert quick.run("update", days("01", "02")).success
    folder = quick.pipeline.folder / "data" / "day=2013-01-01"
    folder.rename(folder.with_name("day=2013-1-1"))
    assert quick.run("update", days("01", "03")).success
    assert quick.answer() == [("a", 2, 3, 2)]


@pytest.mark.parametrize("chosen", [days("07", "07"), days("07", "08")])
def test_landing_nothing_at_all_fails_with_a_sentence(quick: DagsterSandbox, chosen: Mapping[str, str]) -> None:
    sales.drop(quick.pipeline, "2013-01-01", [(1, "a", 5)])
    result = quick.run("update", chosen)
    assert not result.success
    assert "2013-01-07" in sentence(result)


def test_a_malformed_row_stops_the_run_with_a_sentence(
    quick: DagsterSandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    """Protects from half a landing, and from the row itself in the event database and in the logs of the run."""
    folder = sales.drop(quick.pipeline, "2013-01-01", [(1, "a", 5)])
    (folder / "wrong.csv").write_text("id,shop,amount\n2,a,many\n")
    result = quick.run("update", partition_key="2013-01-01")
    assert not result.success
    assert "wrong.csv, line 2, does not fit" in sentence(result)
    assert "2,a,many" not in "".join(map(dg.serialize_value, quick.instance.all_logs(result.run_id)))
    assert "2,a,many" not in "".join(capfd.readouterr())
    assert not [event for event in result.all_events if event.is_step_up_for_retry]
    assert VIEW not in {event.asset_key for event in result.get_asset_materialization_events()}


def test_a_crash_is_tried_again(quick: DagsterSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sales.drop(quick.pipeline, "2013-01-01", [(1, "a", 5)])
    crashes = [OSError("the disk blinked")]
    opened = SparkResource.open

    def fragile(resource: SparkResource, pipeline: catalogue.Pipeline):
        if crashes:
            raise crashes.pop()
        return opened(resource, pipeline)

    monkeypatch.setattr(SparkResource, "open", fragile)
    quick.defined = located(quick.pipeline, retry_policy=dg.RetryPolicy(max_retries=CRASHES.max_retries))
    result = quick.run("update", partition_key="2013-01-01")
    assert result.success
    assert [event.step_key for event in result.all_events if event.is_step_up_for_retry] == ["sales__landed__sales"]


def test_a_changed_query_is_refused_and_rebuilt_on_demand(quick: DagsterSandbox) -> None:
    sales.drop(quick.pipeline, "2013-01-01", [(1, "a", 5)])
    assert quick.run("update", partition_key="2013-01-01").success
    (quick.pipeline.folder / "query.sql").write_text("SELECT shop, min(amount) AS least FROM sales GROUP BY shop")
    changed = catalogue.load("sales", quick.pipeline.folder.parent)
    quick.pipeline, quick.defined = changed, located(changed)
    refused = quick.run("refresh")
    assert not refused.success
    assert sentence(refused)
    rebuilt = quick.run("refresh", run_config={"ops": {"sales__refresh": {"config": {"rebuild": True}}}})
    assert rebuilt.success
    assert quick.answer() == [("a", 5)]


def test_a_view_that_is_not_equal_fails_its_check_and_blocks(
    bench: DagsterSandbox, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    sales.drop(bench.pipeline, "2013-01-01", [(1, "a", 5)])
    assert bench.run("update", partition_key="2013-01-01").success
    spark.sql(f"UPDATE delta.`{maintained_path(bench.view())}` SET total = 6")
    assert not bench.run("refresh").success  # it is refused
    monkeypatch.setattr("deltafold.refresh.refresh.check_tables", lambda *_: None)
    result = bench.run("refresh")
    assert not result.success
    [check] = result.get_asset_check_evaluations()
    assert not check.passed
    assert check.blocking
    assert check.metadata["missing rows"].value == 1
    assert check.metadata["extra rows"].value == 1


@night
def test_dynamic_partitions_are_landed_by_name(tmp_path: Path, spark: SparkSession, in_memory: Lake) -> None:
    bench = DagsterSandbox(tmp_path, spark, sales.DYNAMIC)
    for key in ("monday", "tuesday"):
        sales.drop(bench.pipeline, key, [(1, key, 1)])
    bench.instance.add_dynamic_partitions("sales", ["monday", "tuesday"])
    assert bench.run("update", {RANGE_START: "monday", RANGE_END: "tuesday"}).success
    assert bench.answer() == [("monday", 1, 1, 1), ("tuesday", 1, 1, 1)]
    assert bench.instance.get_materialized_partitions(LANDED) == {"monday", "tuesday"}
