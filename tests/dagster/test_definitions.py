"""What Dagster loads: quickly, without a JVM, and with whatever is known of the plans."""

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from deltafold.algebra.results.report import Description, StateDescription
from deltafold.dagster import DeltafoldTranslator, landing_assets, pipeline_jobs, pipeline_steps
from deltafold.dagster.resources import SparkResource
from deltafold.pipelines import catalogue, descriptions
from tests.dagster import sales
from tests.dagster.shown import located
from tests.dagster.web.server import PROJECT
from tests.pipelines.declared import MINIMAL, write

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

LOAD = """
import json, sys, time
start = time.process_time()  # not the wall clock: the machine may be busy
import dagster
imported = time.process_time()
from MODULE import defs
graph = defs.resolve_asset_graph()
loaded = time.process_time()
from pyspark import SparkContext
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


def load(folder: Path, module: str = "deltafold.dagster.definitions") -> dict[str, object]:
    """Load the definitions in a process of its own."""
    environment = {**os.environ, "DELTAFOLD_PIPELINES": str(folder)}
    shown = subprocess.run(
        [sys.executable, "-c", LOAD.replace("MODULE", module)],
        env=environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not shown.stderr
    return json.loads(shown.stdout)


def test_loading_is_quick_and_starts_no_jvm(tmp_path: Path) -> None:
    sales.declare(tmp_path, besides=sales.BESIDES)
    loaded = load(tmp_path)
    assert loaded["gateway"] is False
    assert loaded["slow"] == []
    assert isinstance(loaded["of_dagster"], float)
    assert loaded["of_dagster"] < 1  # a share of what Dagster's own import takes: machines differ
    assert loaded["assets"] == ["rates", "sales", "sales/landed/sales", "sales/landed/shops", "towns"]


def test_the_pipelines_that_come_along_can_be_loaded() -> None:
    """By the code location of this repository, which has the same assets as the one in the package."""
    ours, packaged = load(PROJECT / "pipelines", "assets.definitions"), load(PROJECT / "pipelines")
    assert isinstance(ours["assets"], list)
    assert "flights" in ours["assets"] and ours["assets"] == packaged["assets"]


@pytest.mark.parametrize("name", ["wrong", "Not a name"])
def test_a_pipeline_that_is_not_declared_well_says_so_and_leaves_the_others_alone(tmp_path: Path, name: str) -> None:
    sound = sales.declare(tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / name / "pipeline.yaml").write_text("sources: {}\n")
    found = catalogue.survey_pipelines(tmp_path)
    defined = located(sound)
    asset = defined.resolve_assets_def(dg.AssetKey(name))
    assert asset.specs_by_key[dg.AssetKey(name)].description == f"Invalid declaration. {found[name]}"
    result = dg.materialize([asset], raise_on_error=False, instance=dg.DagsterInstance.ephemeral())
    [failed] = result.get_step_failure_events()
    assert failed.step_failure_data.user_failure_data is not None
    assert failed.step_failure_data.user_failure_data.description == str(found[name])
    assert dg.AssetKey("sales") in defined.resolve_asset_graph().get_all_asset_keys()


@pytest.mark.parametrize("line", ["group: data-team", "owners: [ada@localhost]", "owners: [ada@firm.technology]"])
def test_an_attribute_that_dagster_rejects_is_an_error_of_its_declaration(tmp_path: Path, line: str) -> None:
    sound = sales.declare(tmp_path)
    write(tmp_path, "other", f"{line}\n{MINIMAL}")
    value = line.split(": ")[1].strip("[]")
    defined = located(sound)
    shown = defined.resolve_assets_def(dg.AssetKey("other")).specs_by_key[dg.AssetKey("other")].description
    assert shown is not None
    assert f"{value!r} is not a" in shown
    assert dg.AssetKey("sales") in defined.resolve_asset_graph().get_all_asset_keys()


class Rejected(DeltafoldTranslator):
    def get_asset_spec(self, pipeline: catalogue.Pipeline) -> dg.AssetSpec:
        owners = ["nobody"] if pipeline.name == "sales" else []
        return super().get_asset_spec(pipeline).replace_attributes(owners=owners)

    def get_landing_spec(self, pipeline: catalogue.Pipeline, source: str) -> dg.AssetSpec:
        return super().get_landing_spec(pipeline, source).replace_attributes(group_name="data-team")


def test_an_asset_that_dagster_rejects_leaves_the_others_alone(tmp_path: Path) -> None:
    sales.declare(tmp_path)
    write(tmp_path, "top", "sources:\n  sales: {view: sales}\n", sql="SELECT count(*) AS n FROM sales")
    steps = pipeline_steps(tmp_path, translator=Rejected())
    landings = landing_assets(tmp_path, translator=Rejected(), skip_invalid=True)
    defined = dg.Definitions(
        assets=[*landings, *steps], jobs=pipeline_jobs(*steps), resources={"deltafold": SparkResource()}
    )
    graph = defined.resolve_asset_graph()
    assert graph.get(dg.AssetKey("top")).parent_keys == {dg.AssetKey("sales")}
    for key, why in (("sales", "Invalid owner 'nobody'"), ("sales/landed/sales", '"data-team" is not a valid')):
        shown = graph.get(dg.AssetKey.from_user_string(key)).description
        assert shown is not None
        assert why in shown
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="data-team"):
        landing_assets(tmp_path, translator=Rejected())


def test_a_description_gives_columns_until_the_query_changes_and_no_assets(tmp_path: Path) -> None:
    """Protects a run from another graph than it was launched from: other machines have no description."""
    pipeline = sales.declare(tmp_path)
    before = located(pipeline).resolve_asset_graph()
    descriptions.save_description(pipeline, DESCRIPTION, print)
    graph = located(pipeline).resolve_asset_graph()
    assert graph.get_all_asset_keys() == before.get_all_asset_keys()
    view = dg.AssetKey("sales")
    assert "dagster/column_schema" in graph.get(view).metadata
    (pipeline.folder / "query.sql").write_text("SELECT count(*) AS n FROM sales")
    assert descriptions.load_description(catalogue.load("sales", tmp_path)) is None
    assert "dagster/column_schema" not in located(pipeline).resolve_asset_graph().get(view).metadata


def test_a_name_that_dagster_keeps_for_itself_is_said_to_be_one(tmp_path: Path) -> None:
    declared = sales.declare(tmp_path)
    (tmp_path / "sales").rename(tmp_path / "type")
    defined = located(declared)
    described = defined.resolve_assets_def(dg.AssetKey("type")).specs_by_key[dg.AssetKey("type")].description
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
    graph = located(sales.declare(tmp_path)).resolve_asset_graph()
    assert graph.get(dg.AssetKey("sales")).pools == {"sales"}
    assert graph.get(dg.AssetKey(["sales", "landed", "sales"])).pools == {"sales__landed__sales"}


def test_the_jobs_hold_landing_refresh_and_check(tmp_path: Path) -> None:
    defined = located(sales.declare(tmp_path))
    steps = {name: set(defined.resolve_job_def(name).graph.node_dict) for name in ("sales_update", "sales_refresh")}
    assert steps["sales_refresh"] == {"sales__refresh"}
    assert steps["sales_update"] == steps["sales_refresh"] | {"sales__landed__sales"}


def test_all_is_checked_in_a_job_of_its_own_when_it_is_declared(tmp_path: Path) -> None:
    """Protects from a sampled view that nobody ever compares whole, and from config that its step does not take."""
    defined = located(sales.declare(tmp_path, sales.DAILY + 'check: {sample: 1%, schedule: "0 5 * * *"}\n'))
    job = defined.resolve_job_def("check_sales")
    assert set(job.graph.node_dict) == {"sales__refresh"}
    assert job.asset_layer.selected_asset_keys == set()
    config = {"ops": {"sales__refresh": {"config": {"sample": "100%"}}}}
    assert job.run_config == config and dg.validate_run_config(job, config)
    schedule = defined.resolve_schedule_def("check_sales_schedule")
    assert (schedule.cron_schedule, schedule.default_status) == ("0 5 * * *", dg.DefaultScheduleStatus.RUNNING)


def test_upkeep_is_a_job_of_its_own_and_runs_when_it_is_declared(tmp_path: Path) -> None:
    defined = located(sales.declare(tmp_path / "plain"))
    assert set(defined.resolve_job_def("maintain_sales").graph.node_dict) == {"sales__maintain"}
    weekly = defined.resolve_schedule_def("maintain_sales_schedule")
    assert (weekly.default_status, weekly.cron_schedule) == (dg.DefaultScheduleStatus.STOPPED, "0 3 * * 0")
    declared = located(sales.declare(tmp_path / "declared", sales.DAILY + 'maintain: "0 4 * * *"\n'))
    daily = declared.resolve_schedule_def("maintain_sales_schedule")
    assert (daily.default_status, daily.cron_schedule) == (dg.DefaultScheduleStatus.RUNNING, "0 4 * * *")
