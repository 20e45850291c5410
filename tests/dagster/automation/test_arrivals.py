"""From folders to one run: the folder sensor, the table sensor and the schedule, evaluated without Spark."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

import deltafold.dagster as df
from deltafold.dagster import metadata, partitions
from deltafold.pipelines import catalogue
from deltafold.pipelines.tasks import find_locations
from tests.cli.pretended import REPORT
from tests.dagster import sales
from tests.dagster.shown import located
from tests.pipelines.declared import MINIMAL, write

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

LAND_WHAT_CHANGED = {"ops": {"sales__landed__sales": {"config": {"changed_only": True}}}}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as found:
        yield found


def definitions(pipeline: catalogue.Pipeline) -> dg.Definitions:
    return located(pipeline)


def tick(pipeline: catalogue.Pipeline, sensor: str, instance: dg.DagsterInstance, cursor: str | None = None):
    built = definitions(pipeline)
    context = dg.build_sensor_context(instance, cursor=cursor, repository_def=built.get_repository_def())
    return built.resolve_sensor_def(f"{pipeline.name}_{sensor}").evaluate_tick(context)


def due(pipeline: catalogue.Pipeline, when: datetime, instance: dg.DagsterInstance):
    built = definitions(pipeline)
    context = dg.build_schedule_context(
        instance, scheduled_execution_time=when, repository_def=built.get_repository_def()
    )
    return built.resolve_schedule_def(f"{pipeline.name}_schedule").evaluate_tick(context)


def range_of(request: dg.RunRequest) -> tuple[str | None, str | None]:
    return request.tags.get(partitions.RANGE_START), request.tags.get(partitions.RANGE_END)


def test_many_new_partitions_are_one_run(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = sales.declare(tmp_path)
    for day in ("2013-01-02", "2013-01-03", "2013-01-09"):
        sales.drop(pipeline, day, [(1, "a", 1)])
    found = tick(pipeline, "folders", instance)
    [request] = found.run_requests or []
    assert request.job_name == "sales_update"
    assert range_of(request) == ("2013-01-02", "2013-01-09")
    assert request.run_config == LAND_WHAT_CHANGED


def test_what_was_seen_starts_nothing(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = sales.declare(tmp_path)
    sales.drop(pipeline, "2013-01-02", [(1, "a", 1)])
    first = tick(pipeline, "folders", instance)
    second = tick(pipeline, "folders", instance, first.cursor)
    assert not second.run_requests
    assert second.skip_message == "No files were added, changed or removed for sales."
    for day in ("2013-02-01", "2999-01-01"):  # the partitions are those of January 2013
        sales.drop(pipeline, day, [(2, "a", 1)])
    third = tick(pipeline, "folders", instance, first.cursor)
    assert not third.run_requests
    assert third.skip_message == (
        "No files were added, changed or removed for sales in folders that a partition lands. No partition so far "
        "lands those of 2013-02-01, 2999-01-01."
    )


def test_a_folder_that_no_partition_can_be_called_after_is_said(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Protects from files that are passed over at every tick, and nobody learns of it."""
    pipeline = sales.declare(tmp_path, more=sales.DYNAMIC)
    for key in ("it's; --", "*[a]{b}", "50%", "日"):
        sales.drop(pipeline, key, [(1, "a", 1)])
    assert len(tick(pipeline, "folders", instance).run_requests or []) == 1
    sales.drop(pipeline, "a\\b", [(1, "a", 1)])
    with pytest.raises(
        catalogue.DeclarationError, match=r"is not a partition: it names no single folder. Give one name"
    ):
        tick(pipeline, "folders", instance)


@pytest.mark.parametrize("act", ["changed", "gone"])
def test_a_changed_or_vanished_partition_is_landed_again(
    tmp_path: Path, instance: dg.DagsterInstance, act: str
) -> None:
    pipeline = sales.declare(tmp_path)
    sales.drop(pipeline, "2013-01-01", [(1, "a", 1)])
    folder = sales.drop(pipeline, "2013-01-02", [(1, "a", 1)])
    first = tick(pipeline, "folders", instance)
    if act == "changed":
        sales.drop(pipeline, "2013-01-02", [(1, "a", 1), (2, "b", 2)])
    else:
        shutil.rmtree(folder)
    [request] = tick(pipeline, "folders", instance, first.cursor).run_requests or []
    assert range_of(request) == ("2013-01-02", "2013-01-02")


def test_weeks_are_landed_once_they_are_over(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Protects from runs of partitions that the asset has not, and from days that are never landed."""
    pipeline = sales.declare(tmp_path, sales.DAILY + DAILY_AT_SIX)
    weeks = sales.Partitioned(dg.WeeklyPartitionsDefinition("2013-01-06", end_date="2013-01-20"))
    steps = df.pipeline_steps(tmp_path)
    defs = dg.Definitions(
        [*steps, *df.landing_assets(tmp_path, translator=weeks)],
        jobs=df.pipeline_jobs(*steps),
        schedules=df.pipeline_schedules(*steps),
        sensors=df.pipeline_sensors(*steps),
        resources={"deltafold": df.SparkResource()},
    )
    for day in ("2013-01-07", "2013-01-16", "2013-01-22"):
        sales.drop(pipeline, day, [(1, "a", 1)])
    context = dg.build_sensor_context(instance, repository_def=defs.get_repository_def())
    [request] = defs.resolve_sensor_def("sales_folders").evaluate_tick(context).run_requests or []
    assert range_of(request) == ("2013-01-06", "2013-01-13")
    for day, found in ((13, "2013-01-06"), (14, None)):
        built = dg.build_schedule_context(
            instance,
            scheduled_execution_time=datetime(2013, 1, day, 6, tzinfo=UTC),
            repository_def=defs.get_repository_def(),
        )
        done = defs.resolve_schedule_def("sales_schedule").evaluate_tick(built)
        assert [request.partition_key for request in done.run_requests or []] == ([found] if found else [])
    assert done.skip_message == "The partition of 2013-01-13 is not over yet."


def test_a_day_outside_the_partitions_is_left_alone(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = sales.declare(tmp_path)
    sales.drop(pipeline, "2013-03-01", [(1, "a", 1)])
    assert not tick(pipeline, "folders", instance).run_requests


def test_new_dynamic_partitions_are_registered(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = sales.declare(tmp_path, sales.DYNAMIC)
    instance.add_dynamic_partitions("sales", ["m"])
    for key in ("a", "m", "z"):
        sales.drop(pipeline, key, [(1, "a", 1)])
    found = tick(pipeline, "folders", instance)
    [request] = found.run_requests or []
    assert range_of(request) == ("m", "z")  # a and z come after m, in the order in which they are registered
    assert [new.partition_keys for new in found.dynamic_partitions_requests or []] == [["a", "z"]]


def test_a_source_without_partitions_is_landed_alone(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = sales.declare(tmp_path, besides=sales.BESIDES)
    (pipeline.folder / "shops").mkdir()
    (pipeline.folder / "shops" / "shops.csv").write_text("shop,town\na,x\n")
    [request] = tick(pipeline, "folders", instance).run_requests or []
    assert range_of(request) == (None, None)
    assert set(request.asset_selection or []) == {
        dg.AssetKey(["sales", "landed", "shops"]),
        dg.AssetKey("sales"),
    }
    assert list(request.run_config["ops"]) == ["sales__landed__shops"]


def test_an_unpartitioned_pipeline_is_landed_whole(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    write(tmp_path, "shop", MINIMAL)
    pipeline = catalogue.load("shop", tmp_path)
    (pipeline.folder / "data").mkdir()
    (pipeline.folder / "data" / "x.csv").write_text("id,day\n1,2013-01-01\n")
    [request] = tick(pipeline, "folders", instance).run_requests or []
    assert request.asset_selection is None
    assert range_of(request) == (None, None)


def test_a_new_version_of_a_table_is_an_event_of_its_asset(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = sales.declare(tmp_path, besides=sales.BESIDES)
    nothing = tick(pipeline, "tables", instance)
    assert nothing.skip_message == "No new version of rates."
    sales.commit(pipeline.folder / "rates", 3)
    sales.commit(pipeline.folder / "towns", 1)  # declared invariant
    first = tick(pipeline, "tables", instance)
    assert [event.asset_key for event in first.asset_events] == [dg.AssetKey("rates")]
    assert json.loads(first.cursor or "") == {"rates": 3}
    assert not tick(pipeline, "tables", instance, first.cursor).asset_events
    sales.commit(pipeline.folder / "rates", 4)
    [event] = tick(pipeline, "tables", instance, first.cursor).asset_events
    assert event.metadata["version"].value == 4


DAILY_AT_SIX = 'schedule: "0 6 * * *"\n'


def test_a_tick_lands_yesterday(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = sales.declare(tmp_path, sales.DAILY + DAILY_AT_SIX)
    [request] = due(pipeline, datetime(2013, 1, 10, 6, tzinfo=UTC), instance).run_requests or []
    assert request.partition_key == "2013-01-09"


def test_a_tick_outside_the_partitions_says_so(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = sales.declare(tmp_path, sales.DAILY + DAILY_AT_SIX)
    found = due(pipeline, datetime(2013, 3, 10, 6, tzinfo=UTC), instance)
    assert found.skip_message == "Yesterday, 2013-03-09, is outside the partitions that sales declares."


def test_a_tick_lands_all_dynamic_partitions_that_changed(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = sales.declare(tmp_path, sales.DYNAMIC + DAILY_AT_SIX)
    now = datetime(2013, 1, 10, 6, tzinfo=UTC)
    assert due(pipeline, now, instance).skip_message == "There are no files yet for sales."
    for key in ("a", "b"):
        sales.drop(pipeline, key, [(1, "a", 1)])
    [request] = due(pipeline, now, instance).run_requests or []
    assert range_of(request) == ("a", "b")
    assert request.run_config == LAND_WHAT_CHANGED
    assert instance.get_dynamic_partitions("sales") == ["a", "b"]


def test_no_schedule_declared_none_made(tmp_path: Path) -> None:
    """Upkeep has one of its own, which nobody has turned on."""
    (upkeep,) = list(definitions(sales.declare(tmp_path)).schedules or ())
    assert isinstance(upkeep, dg.ScheduleDefinition)
    assert (upkeep.name, upkeep.default_status) == ("maintain_sales_schedule", dg.DefaultScheduleStatus.STOPPED)


def test_a_table_by_name_is_watched_where_a_refresh_found_it(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Protects from a sensor that never looks at such a table, or looks where another one was, without a word."""
    text = f"sources: {{orders: {{table: prod.orders}}, rates: {{delta: {tmp_path / 'rates'}}}}}\n"
    home = write(tmp_path, "named", text, sql="SELECT id FROM orders")
    pipeline = catalogue.load("named", tmp_path)
    unknown = "The location of table prod.orders (source orders) is not known. Refresh named once"
    assert f"No new version of rates. {unknown}" in str(tick(pipeline, "tables", instance).skip_message)
    sales.commit(tmp_path / "lake", 4)
    tables = {"orders": SimpleNamespace(path=str(tmp_path / "lake"))}
    view: Any = SimpleNamespace(warehouse=SimpleNamespace(tables=lambda: tables))
    report = replace(REPORT, versions={"orders": (None, 3), "rates": (None, 0)})
    shown = metadata.of_locations(find_locations(pipeline, view, report))
    instance.report_runless_asset_event(dg.AssetMaterialization(dg.AssetKey("named"), metadata=shown))
    [event] = tick(pipeline, "tables", instance).asset_events
    assert event.asset_key == dg.AssetKey("orders")
    assert event.metadata["version"].value == 4
    (home / "pipeline.yaml").write_text(text.replace("prod", "test"))
    other = tick(catalogue.load("named", tmp_path), "tables", instance)
    assert unknown.replace("prod", "test") in str(other.skip_message)
