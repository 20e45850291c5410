"""What Dagster loads: quickly, without a JVM, and with whatever is known of the plans."""

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.code_pointer import CodePointer
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.definitions.reconstruct import (
    initialize_repository_def_from_pointer,
    reconstruct_repository_def_from_pointer,
)
from dagster._core.definitions.repository_definition import RepositoryLoadData
from dagster._serdes import deserialize_value, serialize_value

from deltafold.algebra.results.report import Description, StateDescription
from deltafold.dagster import factory, keys
from deltafold.dagster.resources import SparkResource
from deltafold.pipelines import catalogue, descriptions
from tests.dagster import sales
from tests.dagster.web.server import PROJECT
from tests.night import night

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

LOAD = """
import json, sys, time
start = time.process_time()  # not the wall clock: the machine may be busy
import dagster
imported = time.process_time()
from deltafold.dagster.definitions import defs
graph = defs.resolve_asset_graph()
loaded = time.process_time()
from pyspark import SparkContext
from deltafold.dagster import keys
print(json.dumps({
    "of_dagster": (loaded - imported) / (imported - start),
    "gateway": SparkContext._gateway is not None,
    "slow": [name for name in ("pandas", "matplotlib", "pyarrow") if name in sys.modules],
    "assets": sorted(key.to_user_string() for key in graph.get_all_asset_keys()),
}))
"""
DESCRIPTION = Description(
    name="sales",
    fingerprint="f",
    mode="incremental",
    states=(StateDescription(name="by_shop", keys=("shop",), columns=("rows", "total")),),
    columns=(("shop", "string"), ("total", "bigint")),
    explain="r0 := sales",
    sources=("sales",),
)


def load(folder: Path) -> dict[str, object]:
    """Load the definitions in a process of its own."""
    environment = {**os.environ, "DELTAFOLD_PIPELINES": str(folder)}
    shown = subprocess.run(
        [sys.executable, "-c", LOAD], env=environment, cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert not shown.stderr
    return json.loads(shown.stdout)


def built(pipeline: catalogue.Pipeline) -> dg.Definitions:
    described = descriptions.load_description(pipeline)
    return factory.build({"sales": pipeline}, {"sales": described} if described else {}, SparkResource())


def test_loading_is_quick_and_starts_no_jvm(tmp_path: Path) -> None:
    sales.declare(tmp_path, besides=sales.BESIDES)
    loaded = load(tmp_path)
    assert loaded["gateway"] is False
    assert loaded["slow"] == []
    assert isinstance(loaded["of_dagster"], float)
    assert loaded["of_dagster"] < 1  # a share of what Dagster's own import takes: machines differ
    assert loaded["assets"] == [
        "sales",
        "sales/landed/sales",
        "sales/landed/shops",
        "sales/source/rates",
        "sales/source/towns",
        "sales/state",
    ]


def test_the_pipelines_that_come_along_can_be_loaded() -> None:
    loaded = load(PROJECT / "pipelines")
    assert isinstance(loaded["assets"], list)
    assert "flights" in loaded["assets"]


@pytest.mark.parametrize("name", ["wrong", "Not a name"])
def test_a_pipeline_that_is_not_declared_well_says_so_and_leaves_the_others_alone(tmp_path: Path, name: str) -> None:
    sales.declare(tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / name / "pipeline.yaml").write_text("sources: {}\n")
    found = catalogue.survey_pipelines(tmp_path)
    defined = factory.build(found, {}, SparkResource())
    asset = defined.resolve_assets_def(keys.view(name))
    assert asset.specs_by_key[keys.view(name)].description == f"Invalid declaration. {found[name]}"
    result = dg.materialize([asset], raise_on_error=False, instance=dg.DagsterInstance.ephemeral())
    [failed] = result.get_step_failure_events()
    assert failed.step_failure_data.user_failure_data is not None
    assert failed.step_failure_data.user_failure_data.description == str(found[name])
    assert keys.view("sales") in defined.resolve_asset_graph().get_all_asset_keys()


def test_a_description_shows_the_state_tables_until_the_query_changes(tmp_path: Path) -> None:
    pipeline = sales.declare(tmp_path)
    descriptions.save_description(pipeline, DESCRIPTION, print)
    graph = built(pipeline).resolve_asset_graph()
    by_shop = keys.state("sales", "by_shop")
    assert graph.get(keys.view("sales")).parent_keys == {by_shop}
    assert graph.get(by_shop).parent_keys == {keys.landed("sales", "sales")}
    assert not graph.has(keys.state("sales"))
    (pipeline.folder / "query.sql").write_text("SELECT count(*) AS n FROM sales")
    changed = catalogue.load("sales", tmp_path)
    assert descriptions.load_description(changed) is None
    assert built(changed).resolve_asset_graph().has(keys.state("sales"))


@night
def test_a_run_sees_the_graph_that_it_was_launched_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects a run of selected assets from state tables that became known since the code was loaded, or are unknown
    on the machine where it runs."""
    pointer = CodePointer.from_module("deltafold.dagster.definitions", "defs", None)

    def load_there(machine: Path, data: RepositoryLoadData | None) -> tuple[set[dg.AssetKey], RepositoryLoadData]:
        """The assets that a new process of a machine has, and what Dagster stores for its runs; data: stored before."""
        monkeypatch.setenv("DELTAFOLD_PIPELINES", str(machine))
        monkeypatch.delitem(sys.modules, "deltafold.dagster.definitions", raising=False)
        context = DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)
        monkeypatch.setattr(DefinitionsLoadContext, "_instance", context)  # of 1.12.0, too
        if data is None:
            repository = initialize_repository_def_from_pointer(pointer)
        else:
            stored = deserialize_value(serialize_value(data), RepositoryLoadData)
            repository = reconstruct_repository_def_from_pointer(pointer, stored)
        assert repository.repository_load_data is not None
        return set(repository.asset_graph.get_all_asset_keys()), repository.repository_load_data

    here = sales.declare(tmp_path / "here" / "pipelines").folder.parent
    there = sales.declare(tmp_path / "there" / "pipelines").folder.parent
    single_state, first = load_there(here, None)
    descriptions.save_description(catalogue.load("sales", here), DESCRIPTION, print)
    state_tables, second = load_there(here, None)
    assert keys.state("sales") in single_state and keys.state("sales", "by_shop") in state_tables
    assert load_there(here, first)[0] == single_state
    assert load_there(there, None)[0] == single_state
    assert load_there(there, second)[0] == state_tables
    (here / "sales" / "query.sql").write_text("SELECT count(*) AS n FROM sales")
    assert load_there(here, None)[0] == single_state
    assert load_there(here, second)[0] == state_tables


def test_a_name_that_dagster_keeps_for_itself_is_said_to_be_one(tmp_path: Path) -> None:
    sales.declare(tmp_path)
    (tmp_path / "sales").rename(tmp_path / "type")
    defined = factory.build(catalogue.survey_pipelines(tmp_path), {}, SparkResource())
    described = defined.resolve_assets_def(keys.view("type")).specs_by_key[keys.view("type")].description
    assert described is not None
    assert "Rename the folder" in described


@pytest.mark.parametrize("text", ["{", "[]", '{"digest": "DIGEST", "description": "{}"}'])
def test_a_description_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    pipeline = sales.declare(tmp_path)
    descriptions.save_description(pipeline, DESCRIPTION, print)
    [file] = (tmp_path / "sales" / "warehouse").iterdir()
    file.write_text(text.replace("DIGEST", descriptions.digest(pipeline)))
    assert descriptions.load_description(pipeline) is None


def test_every_step_of_a_view_is_in_its_pool(tmp_path: Path) -> None:
    graph = built(sales.declare(tmp_path)).resolve_asset_graph()
    assert graph.get(keys.view("sales")).pools == {"sales"}
    assert graph.get(keys.landed("sales", "sales")).pools == {"sales__landed__sales"}


def test_the_jobs_hold_landing_refresh_and_check(tmp_path: Path) -> None:
    defined = built(sales.declare(tmp_path))
    steps = {name: set(defined.resolve_job_def(name).graph.node_dict) for name in ("sales_update", "sales_refresh")}
    assert steps["sales_refresh"] == {"sales__refresh", "sales_equals_batch"}
    assert steps["sales_update"] == steps["sales_refresh"] | {"sales__landed__sales"}


def test_all_is_checked_in_a_job_of_its_own_when_it_is_declared(tmp_path: Path) -> None:
    """Protects from a sampled view that nobody ever compares whole, and from config that its step does not take."""
    defined = built(sales.declare(tmp_path, sales.DAILY + 'check: {sample: 1%, schedule: "0 5 * * *"}\n'))
    job = defined.resolve_job_def("check_sales")
    assert set(job.graph.node_dict) == {"sales_equals_batch"}
    config = {"ops": {"sales_equals_batch": {"config": {"sample": "100%"}}}}
    assert job.run_config == config and dg.validate_run_config(job, config)
    schedule = defined.resolve_schedule_def("check_sales_schedule")
    assert (schedule.cron_schedule, schedule.default_status) == ("0 5 * * *", dg.DefaultScheduleStatus.RUNNING)


def test_upkeep_is_a_job_of_its_own_and_runs_when_it_is_declared(tmp_path: Path) -> None:
    defined = built(sales.declare(tmp_path / "plain"))
    assert set(defined.resolve_job_def("maintain_sales").graph.node_dict) == {"sales__maintain"}
    weekly = defined.resolve_schedule_def("maintain_sales_schedule")
    assert (weekly.default_status, weekly.cron_schedule) == (dg.DefaultScheduleStatus.STOPPED, "0 3 * * 0")
    declared = built(sales.declare(tmp_path / "declared", sales.DAILY + 'maintain: "0 4 * * *"\n'))
    daily = declared.resolve_schedule_def("maintain_sales_schedule")
    assert (daily.default_status, daily.cron_schedule) == (dg.DefaultScheduleStatus.RUNNING, "0 4 * * *")
