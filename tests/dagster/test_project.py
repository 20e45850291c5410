"""In the Dagster project of a user: definitions that merge with theirs, and come with nothing else, without Java."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

import deltafold.dagster as df
from deltafold.algebra.errors import DeltafoldError, DeltafoldWarning
from deltafold.algebra.results.address import Address
from deltafold.algebra.results.report import Description, Report, Verification
from deltafold.dagster.task_runner import REBUILD, failure_of
from deltafold.dagster.translator import derive_name
from deltafold.pipelines import catalogue, descriptions
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.declaration.values import PIPELINE_NAME
from deltafold.pipelines.project_tasks import ProjectResult, ProjectTask
from deltafold.pipelines.tasks import MaintainedView, MaintainTask, RefreshedView, RefreshTask, TaskFault, VerifyTask
from tests.cli.pretended import UPKEEP
from tests.dagster import sales
from tests.night import night
from tests.pipelines.declared import write
from tests.pipelines.test_docs import blocks
from tests.spark.machine import PROJECT

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning"),
]
QUERY = "SELECT customer, sum(amount) AS revenue FROM orders GROUP BY customer"
RAW = dg.AssetKey(["raw", "orders"])
VIEW = dg.AssetKey(["marts", "revenue"])
# the first releases of 1.12 have no `dg` in templates
CONDITIONS = "dg.AutomationCondition" if "dg" in dg.ResolutionContext.default().scope else "automation_condition"
EAGER = f"{{{{ {CONDITIONS}.eager() }}}}"
MANY = """
import json, os, sys
from pathlib import Path
import dagster as dg
import deltafold.dagster as df
folder = Path(sys.argv[1])
views = [
    df.maintained_view(
        f"view_{number}", "SELECT k, count(*) AS n FROM t GROUP BY k", sources={"t": "data/t"}, warehouse="warehouse"
    )
    for number in range(100)
]
theirs = dg.Definitions(assets=views, resources={"deltafold": object()})
ours = [df.deltafold_assets(folder), df.deltafold_assets(folder / "projects" / "shop")]
graph = dg.Definitions.merge(theirs, dg.Definitions(assets=ours)).resolve_asset_graph()
children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
print(json.dumps({
    "assets": sum(node.is_materializable for node in graph.asset_nodes),
    "imported": sorted({"py4j", "pyspark", "pandas", "pyarrow", "matplotlib"} & set(sys.modules)),
    "children": children,
}))
"""
NAMED = """
import dagster as dg
import deltafold.dagster as df

class Named(df.DeltafoldPipeline):
    def get_asset_spec(self, pipeline):
        return super().get_asset_spec(pipeline).replace_attributes(key=["marts", pipeline.name])

    def execute(self, context, desk: dg.ResourceParam[list]):
        yield from super().execute(context)
        desk.append("refreshed")
"""


MAINTAINED: list[str] = []


class Pretended(dg.ConfigurableResource):
    """Refreshes nothing; the dataset `differs` is not equal to its query."""

    differs: str = ""

    def run(self, context: object, pipeline: Pipeline, task: object) -> object:
        if isinstance(task, VerifyTask):
            ok = pipeline.name != self.differs
            measured: Any = {"missing": 0, "extra": 0, "rows": 1, "versions": {}, "sample": (), "sentence": "compared"}
            return Verification(view=pipeline.name, ok=ok, **measured)
        if isinstance(task, MaintainTask):
            MAINTAINED.append(pipeline.name)
            return MaintainedView(UPKEEP)
        return refreshed(pipeline.name)

    def run_project(self, context: object, files: object, task: ProjectTask) -> ProjectResult:
        assert task.maintained
        copied = {name: refreshed(name) for name in task.maintained[:1]}
        return ProjectResult(upkeep=dict.fromkeys(task.maintained, UPKEEP), views=copied)


def refreshed(name: str) -> RefreshedView:
    report = Report(view=name, epoch=1, generation=1, verdict="applied", sentence="refreshed")
    address: Any = {"table": "", "version": 0, "generation": 1, "epoch": 1, "columns": (), "finished": ""}
    return RefreshedView(
        report=report,
        description=described(name),
        rows=1,
        address=Address(view=name, path="/wh", **address),
        history=(),
        locations={},
    )


def described(name: str) -> Description:
    return Description(
        name=name,
        fingerprint="f",
        mode="incremental",
        states=(),
        columns=(("shop", "string"), ("rank", "int")),
        explain="",
        sources=("sales", "rates"),
        lineage={"shop": (("sales", "shop"), ("rates", "shop"))},
    )


@dg.asset(key=RAW)
def orders(spark: dg.ResourceParam[str]) -> None:
    """An asset of the user's."""


THEIRS = dg.Definitions(assets=[orders], resources={"spark": "theirs"}, executor=dg.multiprocess_executor)


def revenue(**more: Any) -> dg.AssetsDefinition:
    asset = dg.AssetSpec(
        VIEW,
        group_name="marts",
        owners=["team:finance"],
        tags={"tier": "gold"},
        metadata={"slack": "#finance"},
        automation_condition=dg.AutomationCondition.eager(),
    )
    sources = {"orders": df.TableSource("lake/orders", asset="raw/orders")}
    return df.maintained_view(asset, QUERY, sources=sources, warehouse="warehouse", **more)


def test_a_view_merges_with_a_project_that_has_a_spark_of_its_own() -> None:
    ours = dg.Definitions(assets=[revenue(equals_batch="10%")], resources={"deltafold": df.SparkResource()})
    merged = dg.Definitions.merge(THEIRS, ours)
    graph = merged.resolve_asset_graph()
    assert set(graph.get_all_asset_keys()) == {RAW, VIEW}
    node = graph.get(VIEW)
    assert (node.parent_keys, node.group_name, node.owners) == ({RAW}, "marts", ["team:finance"])
    assert node.automation_condition == dg.AutomationCondition.eager()
    assert node.kinds == {"deltalake", "spark"} and node.tags["tier"] == "gold"
    assert node.metadata["slack"] == "#finance" and node.metadata["dagster/storage_kind"] == "deltalake"
    [check] = graph.asset_check_keys
    assert check == dg.AssetCheckKey(VIEW, "equals_batch") and graph.get_check_spec(check).blocking
    assert not (ours.jobs or ours.schedules or ours.sensors or ours.executor)
    assert set(merged.get_repository_def().get_top_level_resources()) == {"spark", "deltafold"}


def test_two_tables_of_one_asset_are_one_dependency() -> None:
    sources = {name: df.TableSource(f"lake/{name}", asset="raw/orders") for name in ("orders", "refunds")}
    asked = dg.AssetSpec(VIEW, deps=[dg.AssetDep(RAW, partition_mapping=dg.LastPartitionMapping())])
    view = df.maintained_view(asked, "SELECT * FROM orders", sources=sources, warehouse="warehouse")
    [dep] = next(iter(view.specs)).deps
    assert (dep.asset_key, dep.partition_mapping) == (RAW, dg.LastPartitionMapping())


def test_a_resource_is_needed_under_the_chosen_key_alone() -> None:
    for options, needed in (({}, {"deltafold"}), ({"resource_key": "lake"}, {"lake"}), ({"resource_key": None}, set())):
        assert revenue(**options).required_resource_keys - {"io_manager"} == needed  # which every asset has


def test_an_option_that_is_wrong_is_said_when_the_project_is_loaded() -> None:
    with pytest.raises(DeltafoldError, match=r"maintained view `marts__revenue`: policy: `fast` is not one of"):
        revenue(policy="fast")
    with pytest.raises(DeltafoldError, match="Did you mean `publish_as`"):
        revenue(publish_at="x")


def test_the_query_of_a_file_and_of_a_function_are_referred_to(tmp_path: Path) -> None:
    def totals(orders: Any) -> Any:
        return orders.groupBy("customer").count()

    file = tmp_path / "totals.sql"
    file.write_text(QUERY)
    for query, line, shown in ((file, 1, tmp_path / "totals.sql"), (totals, totals.__code__.co_firstlineno, __file__)):
        view = df.maintained_view("totals", query, sources={"orders": "lake/orders"}, warehouse="w")
        [spec] = view.specs
        [reference] = spec.metadata["dagster/code_references"].code_references
        assert (reference.file_path, reference.line_number) == (str(shown), line)


def test_definitions_of_300_datasets_start_no_java_and_import_no_spark(tmp_path: Path) -> None:
    for number in range(100):
        write(tmp_path, f"dataset_{number}", "sources:\n  t: {delta: /lake/t}\n", sql="SELECT count(*) AS n FROM t")
    shop = tmp_path / "projects" / "shop"
    shop.mkdir(parents=True)
    (shop / "pipeline.yaml").write_text("sources: {first: {delta: /lake/t}}\ndatasets: '*.sql'\n")
    for number in range(100):
        read = f"query_{number - 1}" if number else "first"
        (shop / f"query_{number}.sql").write_text(f"SELECT * FROM {read}")
    environment = os.environ | {"PYTHONPATH": f"{PROJECT}/incremental"}
    command = [sys.executable, "-W", "ignore", "-c", MANY, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"assets": 300, "imported": [], "children": []}


class Ours(df.DeltafoldTranslator):
    def get_asset_spec(self, pipeline: Pipeline) -> dg.AssetSpec:
        spec = super().get_asset_spec(pipeline)
        return spec.replace_attributes(key=["marts", pipeline.name], group_name="marts", owners=["team:finance"])


def test_a_folder_is_one_step_whose_keys_and_sources_are_the_users(tmp_path: Path) -> None:
    low = sales.declare(tmp_path, besides=sales.BESIDES)
    write(tmp_path, "top", "sources:\n  sales: {view: sales}\n", sql="SELECT count(*) AS n FROM sales")
    descriptions.save_description(low, described("sales"), print)
    translator = Ours(source_assets={"rates": RAW})
    datasets = df.deltafold_assets(tmp_path, translator=translator)
    assert datasets.can_subset and datasets.node_def.name == f"{tmp_path.name}__refresh"
    landings = df.landing_assets(tmp_path, translator=translator)
    graph = dg.Definitions(
        assets=[datasets, *landings], resources={"deltafold": df.SparkResource()}
    ).resolve_asset_graph()
    sales_key, top = dg.AssetKey(["marts", "sales"]), dg.AssetKey(["marts", "top"])
    landed = dg.AssetKey(["sales", "landed", "sales"])
    assert graph.get(top).parent_keys == {sales_key}
    assert {landed, RAW, dg.AssetKey("towns")} < graph.get(sales_key).parent_keys
    assert graph.get(landed).partitions_def is not None and graph.get(top).group_name == "marts"
    assert not [key for key in graph.get_all_asset_keys() if "state" in key.path or "source" in key.path]
    lineage = graph.get(sales_key).metadata["dagster/column_lineage"].lineage
    assert lineage.deps_by_column == {"shop": [dg.TableColumnDep(RAW, "shop"), dg.TableColumnDep(landed, "shop")]}
    assert graph.get(sales_key).metadata["columns without lineage"].value == "rank"
    assert [spec.key for spec in df.deltafold_assets(tmp_path, select=["top"]).specs] == [dg.AssetKey("top")]


class Lenient(df.DeltafoldTranslator):
    def get_asset_check_spec(self, pipeline: Pipeline, check: dg.AssetCheckSpec) -> dg.AssetCheckSpec | None:
        return None if pipeline.name == "top" else dg.AssetCheckSpec(check.name, asset=check.asset_key, blocking=False)

    def get_partition_mapping(self, pipeline: Pipeline, source: str) -> dg.PartitionMapping | None:
        return dg.LastPartitionMapping() if source in pipeline.partitioned else None

    def get_landing_spec(self, pipeline: Pipeline, source: str) -> dg.AssetSpec:
        daily = dg.DailyPartitionsDefinition("2013-01-01")
        return super().get_landing_spec(pipeline, source).replace_attributes(partitions_def=daily)


def test_checks_and_partitions_are_the_users(tmp_path: Path) -> None:
    sales.declare(tmp_path)
    write(tmp_path, "top", "sources:\n  sales: {view: sales}\n", sql="SELECT count(*) AS n FROM sales")
    datasets = df.deltafold_assets(tmp_path, translator=Lenient())
    [check] = datasets.check_specs
    assert (check.asset_key, check.blocking) == (dg.AssetKey("sales"), False)
    [dep] = datasets.specs_by_key[dg.AssetKey("sales")].deps
    assert dep.partition_mapping == dg.LastPartitionMapping()
    policy = dg.BackfillPolicy.multi_run(5)
    [landing] = df.landing_assets(tmp_path, translator=Lenient(), backfill_policy=policy)
    assert isinstance(landing.partitions_def, dg.DailyPartitionsDefinition) and landing.backfill_policy == policy


def test_a_selection_is_that_of_dbt(tmp_path: Path) -> None:
    sales.declare(tmp_path, besides=sales.BESIDES)
    more = "group: finance\nowners: [ada@example.org]\ntags: [nightly]\nsources:\n"
    write(tmp_path, "top", f"{more}  sales: {{view: sales}}\n", sql="SELECT count(*) AS n FROM sales")
    write(tmp_path, "other", "sources:\n  towns: {delta: t}\n", sql="SELECT * FROM towns")
    write(tmp_path, "broken", "sources: 1\n", sql="SELECT 1")

    def select(texts: str | Sequence[str], exclude: str = "") -> set[str]:
        return {key.to_user_string() for key in df.deltafold_assets(tmp_path, select=texts, exclude=exclude).keys}

    assert select("+top") == {"sales", "top"} and select("tag:nightly") == {"top"}
    assert select(["source:towns+"]) == {"sales", "top", "other"} and select("source:towns+", "top") == {
        "sales",
        "other",
    }
    [top] = df.deltafold_assets(tmp_path, select="path:top").specs
    assert (top.group_name, [*top.owners], top.tags["nightly"]) == ("finance", ["ada@example.org"], "")
    with pytest.raises(DeclarationError, match=r"^select tob: it matches no dataset\. Did you mean `top`"):
        select("tob")
    with pytest.raises(DeclarationError, match="sources"):
        df.deltafold_assets(tmp_path)


def test_a_check_is_asked_for_as_a_share_or_as_all_that_is_declared(tmp_path: Path) -> None:
    write(tmp_path, "declared", "sources: {}\ncheck: {sample: 10%}\n", sql="SELECT 1 AS a")
    shares = {True: "10%", "1%": "1%"}
    for asked, share in shares.items():
        [check] = df.deltafold_assets(tmp_path, equals_batch=asked).check_specs
        assert check.description is not None and check.description.startswith(f"{share} of the keys")
    assert not [*df.deltafold_assets(tmp_path, equals_batch=False).check_specs]
    with pytest.raises(DeclarationError, match=r"^equals_batch: `few` is not a share"):
        df.deltafold_assets(tmp_path, equals_batch="few")
    [check] = revenue(equals_batch=True).check_specs
    assert check.description is not None and check.description.startswith("100% of the keys")
    assert not [*revenue(equals_batch=False).check_specs]


class WithBelow(Pretended):
    """Refreshes `sales` with each other dataset."""

    def run(self, context: object, pipeline: Pipeline, task: object) -> object:
        done: Any = super().run(context, pipeline, task)
        is_refresh = pipeline.name == "top" and isinstance(task, RefreshTask)
        return replace(done, below=(refreshed("sales"),)) if is_refresh else done


def test_a_dataset_of_another_selection_is_a_dependency_and_is_materialised(tmp_path: Path) -> None:
    """Protects from a condition that does not see what a dataset reads, under a key that nothing has."""
    sales.declare_readers(tmp_path)
    low, top = (df.deltafold_assets(tmp_path, select=name, translator=Ours()) for name in ("sales", "top"))
    defs = dg.Definitions([low, top], resources={"deltafold": WithBelow()})
    keys = dg.AssetKey(["marts", "sales"]), dg.AssetKey(["marts", "top"])
    assert defs.resolve_asset_graph().get(keys[1]).parent_keys == {keys[0]}
    done = defs.resolve_implicit_global_asset_job_def().execute_in_process()
    of_top = [event.asset_key for event in done.get_asset_materialization_events() if event.step_key == top.op.name]
    assert of_top == [*keys]
    shop = tmp_path / "projects" / "shop"
    shop.mkdir(parents=True)
    (shop / "pipeline.yaml").write_text("sources: {first: {delta: /lake/t}}\ndatasets: '*.sql'\n")
    for name, read in (("a", "first"), ("b", "a")):
        (shop / f"{name}.sql").write_text(f"SELECT * FROM {read}")
    [spec] = df.deltafold_assets(shop, select="b", translator=Ours()).specs
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["marts", "a"])]


def test_a_name_of_a_source_that_is_misspelt_is_a_warning(tmp_path: Path) -> None:
    """Protects from a twin in the graph. A translator may serve several folders, so other names are no fault."""
    sales.declare_readers(tmp_path / "shop")
    write(tmp_path / "other", "n", "sources: {visits: {delta: v}}\n", sql="SELECT count(*) AS n FROM visits")
    translator = df.DeltafoldTranslator(source_assets={"town": RAW, "visits": "raw/visits"})
    with pytest.warns(DeltafoldWarning) as warned:
        for select in ("sales", "other"):
            df.deltafold_assets(tmp_path / "shop", select=select, translator=translator)
        df.pipeline_steps(tmp_path / "shop", translator=translator)
        df.deltafold_assets(tmp_path / "other", translator=translator)
    [text] = [str(each.message) for each in warned]
    assert text == (
        f"source_assets: {tmp_path / 'shop'} has no source `town`, so it maps nothing. Did you mean `towns`?"
    )
    with pytest.warns(DeltafoldWarning, match="no source `sale`, so it maps nothing"):
        df.landing_assets(tmp_path / "shop", translator=df.DeltafoldTranslator(source_assets={"sale": "raw/sales"}))


def test_a_folder_without_pipelines_is_no_empty_project(tmp_path: Path) -> None:
    """A path that is wrong would give a location without assets, and no error."""
    for make in (df.deltafold_assets, df.landing_assets, df.pipeline_steps):
        with pytest.raises(DeclarationError, match=r"nowhere: there is no such folder\. .* --pipelines .* new"):
            make(tmp_path / "nowhere")
        with pytest.warns(DeltafoldWarning, match=r"there are no pipelines\. To get one, run deltafold"):
            make(tmp_path)


def test_a_prefix_of_a_modules_assets_is_theirs_too() -> None:
    """Protects from a step that looks for the keys which its assets had in their module, and does nothing."""
    module = ModuleType("module")
    module.__dict__["view"] = revenue(equals_batch="1%")
    assets: Any = dg.load_assets_from_modules([module], key_prefix="shop")
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(assets, resources={"deltafold": Pretended()}, instance=instance)
    keys = {dg.AssetKey(["shop", *VIEW.path])}
    assert {event.asset_key for event in done.get_asset_materialization_events()} == keys
    assert {check.asset_key for check in done.get_asset_check_evaluations()} == keys


class Chained(Pretended):
    """Refreshes each view below a view, too."""

    def run(self, context: object, pipeline: Pipeline, task: object) -> object:
        done = super().run(context, pipeline, task)
        if not isinstance(done, RefreshedView):
            return done
        below = [super(Chained, self).run(context, each, task) for each in pipeline.chain]
        lower = tuple(each for each in below if isinstance(each, RefreshedView))
        return replace(done, below=lower, report=replace(done.report, below=tuple(each.report for each in lower)))


def test_views_below_keep_the_prefix_of_a_module(tmp_path: Path) -> None:
    """Protects from events, jobs and sensors of the keys that the views had before `load_assets_from_modules`."""
    sales.declare(tmp_path)
    for name, below in (("mid", "sales"), ("top", "mid")):
        write(tmp_path, name, f"sources:\n  below: {{view: {below}}}\n", sql="SELECT count(*) AS n FROM below")
    module = ModuleType("module")
    module.__dict__.update(landings=df.landing_assets(tmp_path), steps=df.pipeline_steps(tmp_path))
    assets: Any = dg.load_assets_from_modules([module], key_prefix="marts")
    steps = [each for each in assets if each.node_def.name.endswith("__refresh")]
    defined = dg.Definitions(
        assets=assets,
        jobs=df.pipeline_jobs(*steps),
        sensors=df.pipeline_sensors(*steps),
        resources={"deltafold": Chained()},
    )
    low, mid, top = (dg.AssetKey(["marts", name]) for name in ("sales", "mid", "top"))
    landed = dg.AssetKey(["marts", "sales", "landed", "sales"])
    assert defined.resolve_job_def("sales_update").asset_layer.executable_asset_keys == {landed, low}
    with dg.DagsterInstance.ephemeral() as instance:
        done = defined.resolve_job_def("top_refresh").execute_in_process(instance=instance)
        events = {event.asset_key: event.step_materialization_data for event in done.get_asset_materialization_events()}
    assert set(events) == {low, mid, top}
    assert (events[top].materialization.tags or {})["dagster/input_data_version/marts/mid"] == "1.1"
    sales.drop(catalogue.load("sales", tmp_path), "2013-01-02", [(1, "a", 1)])
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance, repository_def=defined.get_repository_def())
        [request] = defined.resolve_sensor_def("sales_folders").evaluate_tick(context).run_requests or []
        instance.report_runless_asset_event(dg.AssetMaterialization(landed, metadata={"version": 0}))
        followed = defined.resolve_sensor_def("sales_follow").evaluate_tick(context)
    assert dg.validate_run_config(defined.resolve_job_def("sales_update"), request.run_config)
    assert len(followed.run_requests or []) == 1


def test_a_dataset_that_differs_stops_its_readers_and_no_others(tmp_path: Path) -> None:
    sales.declare(tmp_path)
    write(tmp_path, "top", "sources:\n  sales: {view: sales}\n", sql="SELECT count(*) AS n FROM sales")
    write(tmp_path, "other", "sources:\n  t: {delta: /lake/t}\n", sql="SELECT count(*) AS n FROM t")
    datasets = df.deltafold_assets(tmp_path, retry_policy=None)
    pretended = {"deltafold": Pretended(differs="sales")}

    def run(*keys: str) -> tuple[bool, set[str]]:
        with dg.DagsterInstance.ephemeral() as instance:
            done = dg.materialize(
                [datasets], selection=list(keys), resources=pretended, instance=instance, raise_on_error=False
            )
        return done.success, {str(event.materialization.label) for event in done.get_asset_materialization_events()}

    assert run("sales", "top", "other") == (False, {"sales", "other"})
    assert run("top") == (True, {"top"})


def test_two_datasets_in_one_folder_are_refused_before_either_is_refreshed(tmp_path: Path) -> None:
    """Protects from an asset with the rows of another one, which its check compares with the query of that one."""
    write(tmp_path, "cust", "sources:\n  orders: {delta: /lake/others}\nwarehouse: ../wh\n", sql=QUERY)
    write(tmp_path, "top", "sources:\n  cust: {view: cust}\n", sql="SELECT count(*) AS n FROM cust")
    write(tmp_path, "other", "sources:\n  t: {delta: /lake/t}\n", sql="SELECT count(*) AS n FROM t")
    translator = df.DeltafoldTranslator(key_prefix=["marts"])
    folder = df.deltafold_assets(tmp_path, translator=translator, retry_policy=None)

    def run(*assets: dg.AssetsDefinition) -> tuple[set[str], str]:
        with dg.DagsterInstance.ephemeral() as instance:
            pretended = {"deltafold": Pretended()}
            done = dg.materialize(list(assets), resources=pretended, instance=instance, raise_on_error=False)
        made = {
            event.asset_key.to_user_string() for event in done.get_asset_materialization_events() if event.asset_key
        }
        failed = [event.step_failure_data.user_failure_data for event in done.get_step_failure_events()]
        return made, "\n".join(str(each.description) for each in failed if each)

    def view(key: str, query: str = QUERY, **options: Any) -> dg.AssetsDefinition:
        return df.maintained_view(
            key, query, sources={"orders": "/lake/orders"}, warehouse=str(tmp_path / "wh"), **options
        )

    made, why = run(view("cust"), folder)
    assert made == {"marts/other"}
    assert f"asset cust: asset marts/cust is kept in the same folder, {tmp_path}/wh/cust. Give" in why
    assert run(view("cust", name="customers"), folder) == ({"cust", "marts/cust", "marts/top", "marts/other"}, "")
    assert run(view("m/x", name="x"), view("n/x", "SELECT count(*) AS n FROM orders", name="x"))[0] == set()
    assert run(folder, df.deltafold_assets(tmp_path, name="again", select="other"))[1] == ""  # of the same rows


def test_files_are_not_landed_into_the_folder_of_another_pipeline(tmp_path: Path) -> None:
    assets: list[dg.AssetsDefinition] = []
    files = "sources:\n  sales:\n    files: {path: data, format: csv, schema: id INT}\nwarehouse: ../../wh\n"
    for home in ("a", "b"):
        write(tmp_path / home, "shop", files, sql="SELECT count(*) AS n FROM sales")
        translator = df.DeltafoldTranslator(key_prefix=[home])
        assets += df.landing_assets(tmp_path / home, translator=translator, retry_policy=None)
        assets.append(df.deltafold_assets(tmp_path / home, translator=translator, retry_policy=None))
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(assets, resources={"deltafold": Pretended()}, instance=instance, raise_on_error=False)
    failed = [str(event.step_failure_data.user_failure_data) for event in done.get_step_failure_events()]
    assert len(failed) == 2 and "asset a/shop/landed/sales: asset b/shop is kept in the same folder" in "".join(failed)


DAILY = dg.DailyPartitionsDefinition("2026-11-01")


class Partitioned(df.DeltafoldTranslator):
    def get_asset_spec(self, pipeline: Any) -> dg.AssetSpec:
        return super().get_asset_spec(pipeline).replace_attributes(partitions_def=DAILY)


def test_partitions_of_a_dataset_are_refused_wherever_they_are_set(tmp_path: Path) -> None:
    """Protects from a run of one partition that refreshes everything, and marks that partition alone."""
    write(tmp_path, "shop", "sources:\n  t: {delta: /lake/t}\n", sql="SELECT count(*) AS n FROM t")
    why = "partitions_def: a dataset has no partitions. Remove it."
    with pytest.raises(DeclarationError, match=f"asset p/x: {why}"):
        df.maintained_view(dg.AssetSpec(["p", "x"], partitions_def=DAILY), QUERY, sources={}, warehouse="w")
    with pytest.raises(DeclarationError, match=f"asset shop: {why}"):
        df.deltafold_assets(tmp_path, translator=Partitioned())
    [shown] = df.pipeline_steps(tmp_path, translator=Partitioned())
    assert why in str(next(iter(shown.specs)).description)
    later = df.deltafold_assets(tmp_path, retry_policy=None).map_asset_specs(
        lambda spec: spec.replace_attributes(partitions_def=DAILY)
    )
    (tmp_path / "shop" / "pipeline.yaml").write_text("sources: {t: {delta: /lake/t}}\ndatasets: query.sql\n")
    with pytest.raises(DeclarationError, match=f"asset shop/query: {why}"):
        df.deltafold_assets(tmp_path / "shop", translator=Partitioned())
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [later],
            partition_key="2026-11-02",
            resources={"deltafold": Pretended()},
            instance=instance,
            raise_on_error=False,
        )
    [failed] = done.get_step_failure_events()
    assert why in str(failed.step_failure_data.user_failure_data) and not done.get_asset_materialization_events()


def test_any_key_gives_a_name_and_no_two_the_same() -> None:
    """Protects from a key that is refused as a name, and from views that share a folder or a step."""
    keys = ["m/x", "m__x", "M/x", "m/X", "a-b", "a_b", "a.b", "2024/sales", "_x", "l" * 99, "l" * 98 + "m", "Ä/x"]
    views = [df.maintained_view(key, QUERY, sources={}, warehouse="w") for key in keys if key != "Ä/x"]
    names = [derive_name(dg.AssetKey(key.split("/"))) for key in keys]
    assert len(set(names)) == len(keys) and all(PIPELINE_NAME.match(name) for name in names)
    assert names[0] == "m__x" and names[5] == "a_b" and names[7].startswith("view_2024__sales_")
    assert dg.Definitions(assets=views, resources={"deltafold": Pretended()}).resolve_asset_graph()


class OfOneKey(df.DeltafoldTranslator):
    def get_asset_spec(self, pipeline: Any) -> dg.AssetSpec:
        return super().get_asset_spec(pipeline).replace_attributes(key=VIEW)


def test_two_datasets_of_one_key_are_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, name, "sources:\n  t: {delta: /lake/t}\n", sql="SELECT count(*) AS n FROM t")
    with pytest.raises(DeclarationError, match="datasets `a` and `b`: both are the asset marts/revenue"):
        df.deltafold_assets(tmp_path, translator=OfOneKey())


def test_what_is_no_query_is_refused_by_its_class() -> None:
    number: Any = 3
    with pytest.raises(DeclarationError, match="maintained view `x`: query: int is not a query"):
        df.maintained_view("x", number, sources={}, warehouse="w")


def test_an_error_that_asks_for_a_rebuild_shows_how_in_dagster() -> None:
    asked = failure_of(TaskFault("view x: its table is gone. Rebuild the view.", {}, again=False))
    assert asked.description == f"view x: its table is gone. Rebuild the view. {REBUILD}."
    assert failure_of(TaskFault("source t: it is gone. Restore it.", {}, again=False)).description == (
        "source t: it is gone. Restore it."
    )


@pytest.mark.parametrize("option", ["maintain", "watch_tables"])
def test_a_schedule_of_a_component_that_is_none_is_refused_by_its_option(sandbox: Any, option: str) -> None:
    folder = sandbox.scaffold_component(df.MaintainedView, "Big/Sales")
    content = yaml.safe_load((folder / "defs.yaml").read_text())
    content["attributes"] |= {option: "every day", "sources": {"orders": {"delta": "data/orders"}}}
    (folder / "defs.yaml").write_text(yaml.safe_dump(content))
    with (
        pytest.raises(Exception) as raised,
        sandbox.load_component_and_build_defs(folder),
    ):
        pass
    shown = f"{raised.value} {raised.value.__cause__}"
    assert f"{option}: `every day` is not a schedule: it has 2 fields, not five" in shown


class Flaky(Pretended):
    """Fails at the first refresh of the dataset `top`, as a crash does."""

    def run(self, context: object, pipeline: Pipeline, task: object) -> object:
        if not isinstance(task, VerifyTask):
            MAINTAINED.append(pipeline.name)
            if pipeline.name == "top" and MAINTAINED.count("top") == 1:
                raise dg.Failure("lost", allow_retries=True)
        return super().run(context, pipeline, task)


def test_a_second_attempt_leaves_out_what_the_first_has_materialised(tmp_path: Path) -> None:
    """But compares it again, so that a failed check still stops what is downstream."""
    sales.declare(tmp_path)
    write(tmp_path, "top", "sources:\n  sales: {view: sales}\n", sql="SELECT count(*) AS n FROM sales")
    datasets = df.deltafold_assets(tmp_path, retry_policy=dg.RetryPolicy(max_retries=1))
    MAINTAINED.clear()
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize([datasets], resources={"deltafold": Flaky()}, instance=instance)
        made = [str(event.materialization.label) for event in done.get_asset_materialization_events()]
        assert made == ["sales", "top"] and MAINTAINED == ["sales", "top", "top"]
        assert len(done.get_asset_check_evaluations()) == 3
        dg.materialize([datasets], resources={"deltafold": Flaky()}, instance=instance)  # another run refreshes both
        assert MAINTAINED == ["sales", "top", "top", "sales", "top"]
    MAINTAINED.clear()


def test_a_view_reads_another_and_one_job_maintains_both() -> None:
    low = revenue()
    top = df.maintained_view("top", "SELECT count(*) AS n FROM r", sources={"r": low}, warehouse="warehouse")
    graph = dg.Definitions(assets=[low, top], resources={"deltafold": Pretended()}).resolve_asset_graph()
    assert graph.get(dg.AssetKey("top")).parent_keys == {VIEW}
    with pytest.raises(DeltafoldError, match="asset raw/orders: it is not maintained by Deltafold"):
        df.maintenance_job(orders)
    job = df.maintenance_job(low, top, name="upkeep")
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, resources={"deltafold": Pretended()})
    assert done.success and MAINTAINED == ["marts__revenue", "top"]


def test_what_maintenance_copies_in_a_project_is_materialised(tmp_path: Path) -> None:
    """Protects from readers that look up to date; under the keys of a module with a prefix."""
    sales.commit(tmp_path / "orders", 3)
    (tmp_path / "pipeline.yaml").write_text("sources: {orders: {delta: orders}}\ndatasets: '*.sql'\n")
    for name, query in {"sums": QUERY, "tops": "SELECT max(revenue) AS m FROM sums"}.items():
        (tmp_path / f"{name}.sql").write_text(query)
    module = ModuleType("module")
    module.__dict__["datasets"] = df.deltafold_assets(tmp_path)
    assets: Any = dg.load_assets_from_modules([module], key_prefix="shop")
    [watched] = df.source_tables(*assets)
    job = df.maintenance_job(*assets)
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, resources={"deltafold": Pretended()})
        [event] = done.get_asset_materialization_events()
        assert (
            dg.Definitions(assets=[watched])
            .resolve_implicit_global_asset_job_def()
            .execute_in_process(instance=instance)
            .success
        )
        version = instance.get_latest_data_version_record(dg.AssetKey("orders"))
    assert event.asset_key == dg.AssetKey(["shop", tmp_path.name, "sums"])
    assert (event.step_materialization_data.materialization.tags or {})["dagster/data_version"] == "1.1"
    assert version is not None and version.asset_observation is not None


def test_a_watched_table_has_the_version_of_its_log(tmp_path: Path) -> None:
    sales.commit(tmp_path / "orders", 3)
    watched = df.watched_table("raw/orders", str(tmp_path / "orders"))
    with dg.DagsterInstance.ephemeral() as instance:
        job = dg.Definitions(assets=[watched]).resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance).success
        event = instance.get_latest_data_version_record(RAW)
    assert event is not None and event.asset_observation is not None
    assert (event.asset_observation.tags or {})["dagster/data_version"] == "3"


@pytest.fixture
def sandbox() -> Any:
    with create_defs_folder_sandbox() as made:
        yield made


def test_a_scaffolded_view_is_an_asset_that_can_be_processed_afterwards(sandbox: Any) -> None:
    folder = sandbox.scaffold_component(df.MaintainedView, "revenue")
    content = yaml.safe_load((folder / "defs.yaml").read_text())
    assert content["attributes"]["query"] == "revenue.sql" and (folder / "revenue.sql").is_file()
    content["type"] = "deltafold.dagster.MaintainedView"
    content["attributes"]["sources"]["orders"]["asset"] = "raw/orders"
    attributes = {"group_name": "marts", "automation_condition": EAGER}
    content["attributes"] |= {"retries": {"max_retries": 5}}
    content["attributes"] |= {"op": {"name": "of_shop", "tags": {"team": "shop"}, "pool": "spark"}}
    content["post_processing"] = {"assets": [{"target": "*", "attributes": attributes}]}
    (folder / "defs.yaml").write_text(yaml.safe_dump(content))
    with sandbox.build_all_defs() as defs:
        graph = dg.Definitions.merge(THEIRS, defs).resolve_asset_graph()
        node = graph.get(dg.AssetKey("revenue"))
        assert (node.parent_keys, node.group_name) == ({RAW}, "marts")
        assert node.automation_condition == dg.AutomationCondition.eager()
        op: Any = defs.resolve_assets_def("revenue").op
        assert op.retry_policy == dg.RetryPolicy(5, 10, dg.Backoff.EXPONENTIAL)
        assert (op.name, op.tags["team"], op.pool) == ("of_shop", "shop", "spark")
        assert node.check_keys == {dg.AssetCheckKey(dg.AssetKey("revenue"), "equals_batch")}


def test_a_component_has_upkeep_watched_tables_and_translations_where_they_are_asked_for(sandbox: Any) -> None:
    folder = sandbox.scaffold_component(df.MaintainedView, "revenue")
    content = yaml.safe_load((folder / "defs.yaml").read_text())
    content["attributes"]["sources"]["rates"] = {"delta": "data/rates"}
    content["attributes"] |= {"maintain": "0 3 * * 0", "watch_tables": "* * * * *"}
    (folder / "defs.yaml").write_text(yaml.safe_dump(content))
    pipelines = sandbox.scaffold_component(df.DeltafoldPipeline, "marts")
    declared = yaml.safe_load((pipelines / "defs.yaml").read_text())
    translation = {"key": "marts/{{ dataset.name }}", "group_name": "marts", "tags": {"of": "{{ spec.key.path[-1] }}"}}
    translation |= {"automation_condition": EAGER, "deps": ["calendar"]}
    declared["attributes"] |= {"maintain": "0 4 * * 0", "translation": translation}
    (pipelines / "defs.yaml").write_text(yaml.safe_dump(declared))
    with sandbox.build_all_defs() as defs:
        repository = defs.get_repository_def()
        assert {each.name: each.cron_schedule for each in repository.schedule_defs} == {
            "maintain_revenue_schedule": "0 3 * * 0", "maintain_marts_schedule": "0 4 * * 0",
        }  # fmt: skip
        graph = repository.asset_graph
        observed = [node.key for node in graph.asset_nodes if node.is_observable]
        assert observed == [dg.AssetKey("rates")] and graph.get(observed[0]).automation_condition is not None
        node = graph.get(dg.AssetKey(["marts", "customers"]))
        assert (node.group_name, node.tags["of"]) == ("marts", "customers")
        assert node.parent_keys == {dg.AssetKey("orders"), dg.AssetKey("calendar")}
        assert node.automation_condition == dg.AutomationCondition.eager() and node.kinds == {"deltalake", "spark"}


def test_two_components_in_one_folder_are_refused_when_they_are_loaded(sandbox: Any) -> None:
    for folder in (sandbox.scaffold_component(df.MaintainedView, name) for name in ("a", "b")):
        content = yaml.safe_load((folder / "defs.yaml").read_text())
        content["attributes"] |= {"asset": {"key": f"{folder.name}/customers"}, "name": "customers"}
        content["attributes"]["query"] = f"SELECT count(*) AS {folder.name} FROM orders"
        (folder / "defs.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(Exception) as raised, sandbox.build_all_defs():
        pass
    assert "asset b/customers: asset a/customers is kept in the same folder" in str(raised.value.__cause__)


def test_the_view_of_the_docs_is_loaded(sandbox: Any) -> None:
    [declared] = [
        block for block in blocks("yaml", PROJECT / "docs" / "how-to" / "dagster.md") if "MaintainedView" in block
    ]
    folder = sandbox.scaffold_component(df.MaintainedView, "revenue")
    (folder / "defs.yaml").write_text(declared.replace("dg.AutomationCondition", CONDITIONS))
    with sandbox.load_component_and_build_defs(folder) as (_, defs):
        node = defs.resolve_asset_graph().get(VIEW)
    assert (node.parent_keys, node.group_name, node.owners) == ({RAW}, "marts", ["team:finance"])


def test_the_pipelines_of_the_docs_are_loaded(sandbox: Any) -> None:
    [declared] = [
        block for block in blocks("yaml", PROJECT / "docs" / "how-to" / "dagster.md") if "DeltafoldPipeline" in block
    ]
    folder = sandbox.scaffold_component(df.DeltafoldPipeline, "shop")
    (folder / "defs.yaml").write_text(declared)
    pipeline = folder / "pipelines" / "customers" / "pipeline.yaml"
    pipeline.write_text(f"tags: [nightly]\n{pipeline.read_text()}")
    with sandbox.load_component_and_build_defs(folder) as (_, defs):
        node = defs.resolve_asset_graph().get(dg.AssetKey(["marts", "customers"]))
    assert (node.parent_keys, node.tags["nightly"]) == ({RAW}, "")


def test_a_scaffolded_pipeline_is_loaded_and_a_subclass_names_it(sandbox: Any) -> None:
    folder = sandbox.scaffold_component(df.DeltafoldPipeline, "shop")
    with sandbox.load_component_and_build_defs(folder) as (component, defs):
        assert isinstance(component, df.DeltafoldPipeline)
        assert set(defs.resolve_asset_graph().materializable_asset_keys) == {dg.AssetKey("customers")}
    scaffolded = catalogue.load("customers", folder / "pipelines")
    assert scaffolded.warehouse == str(sandbox.project_root / "data" / "warehouse" / "customers")
    (folder.parent / "named.py").write_text(NAMED)
    text = (folder / "defs.yaml").read_text()
    own = text.replace("deltafold.dagster.components.DeltafoldPipeline", f"{sandbox.project_name}.defs.named.Named")
    own = own.replace("attributes:", "attributes:\n  resource_key: deltafold\n  op: {name: of_shop}")
    (folder / "defs.yaml").write_text(own)
    desk: list[str] = []
    with sandbox.load_component_and_build_defs(folder) as (_, defs):
        ours = dg.Definitions.merge(defs, dg.Definitions(resources={"desk": desk, "deltafold": Pretended()}))
        done = ours.resolve_implicit_global_asset_job_def().execute_in_process()
    [event] = done.get_asset_materialization_events()
    assert (event.asset_key, event.step_key, desk) == (dg.AssetKey(["marts", "customers"]), "of_shop", ["refreshed"])


def test_dg_finds_the_components() -> None:
    """By the entry point, whose module lists them."""
    points = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points["dagster_dg_cli.registry_modules"] == {"deltafold": "deltafold.dagster"}
    found = {
        name for name in dir(df) if isinstance(getattr(df, name), type) and issubclass(getattr(df, name), dg.Component)
    }
    assert found == {"MaintainedView", "DeltafoldPipeline"}


@night
@pytest.mark.parametrize(
    ("command", "shown"), [("check", "All definitions loaded successfully"), ("list", "flights/landed/flights")]
)
def test_dg_takes_this_repository_for_a_project(command: str, shown: str) -> None:
    dg_command = Path(sys.executable).with_name("dg")
    if not dg_command.exists():
        pytest.skip("dg is not installed here (make setup)")
    done = subprocess.run([dg_command, command, "defs"], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0 and shown in done.stdout, done.stdout + done.stderr
