"""Projects of many datasets as assets: a pipeline.yaml with datasets, a dbt manifest, a Spark pipeline."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox
from pyspark.sql import SparkSession

import deltafold.dagster as df
from deltafold.algebra.errors import DeltafoldWarning, StateError, UsageError
from deltafold.dagster.dataset_step import step_of
from deltafold.dagster.describing import DEVELOPING
from deltafold.dagster.resources import HOST_VARIABLE
from deltafold.lake.protocol import Lake
from deltafold.pipelines import catalogue
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.resolution import ResolvedView
from deltafold.spark.host.keeper import publish
from tests.cli.calling import call
from tests.pipelines.test_dbt import compiled, model
from tests.pipelines.test_folder_project import write_shop
from tests.properties.comparing import difference
from tests.spark.machine import PROJECT, PYTHONPATH

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning"),
]
DECLARATION = """\
group: finance
owners: ["team:finance"]
check: {sample: 50%}
sources:
  orders:
    files: {path: data/orders, format: csv, schema: "id INT, shop STRING, amount INT"}
policy: auto
datasets: datasets/*.sql
"""
QUERIES = {
    "a_best": "select max(total) best from by_shop",
    "by_shop": "-- deltafold: tags=nightly\nselect shop, sum(amount) total, count(*) n from paid group by shop",
    "paid": "select id, shop, amount from ORDERS where amount > 0 -- from elsewhere",
}


class Prefixed(df.DeltafoldTranslator):
    """Puts a part before the keys of all datasets."""

    def get_asset_spec(self, pipeline):
        return super().get_asset_spec(pipeline).replace_attributes(key=["marts", pipeline.name])


def materialise(assets: list[Any], *keys: str, **more: Any) -> dg.ExecuteInProcessResult:
    """Materialise assets by their keys, or all; the instance forgets."""
    resources = {"deltafold": df.SparkResource()}
    return dg.materialize(assets, selection=list(keys) or None, resources=resources, raise_on_error=False, **more)


def events(done: dg.ExecuteInProcessResult) -> dict[str, dg.AssetMaterialization]:
    """What a run materialised, in order."""
    return {
        event.materialization.asset_key.to_user_string(): event.materialization
        for event in (each.step_materialization_data for each in done.get_asset_materialization_events())
    }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a pipeline with three datasets, and one input file."""
    return write_shop(tmp_path / "pipelines" / "shop", DECLARATION, QUERIES)


def test_a_folder_of_queries_is_a_graph(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = df.deltafold_assets(home)
    graph = dg.Definitions(assets=[datasets], resources={"deltafold": df.SparkResource()}).resolve_asset_graph()
    by_shop = graph.get(dg.AssetKey(["shop", "by_shop"]))
    assert by_shop.parent_keys == {dg.AssetKey(["shop", "paid"])}
    assert (by_shop.group_name, [*by_shop.owners], by_shop.tags["nightly"]) == ("finance", ["team:finance"], "")
    landed = dg.AssetKey(["shop", "landed", "orders"])
    assert graph.get(dg.AssetKey(["shop", "paid"])).parent_keys == {landed} and graph.get(landed).is_materializable
    assert {check.asset_key.path[-1] for check in datasets.check_specs} == set(QUERIES)
    assert [spec.key.path[-1] for spec in df.deltafold_assets(home, select="tag:nightly", exclude="paid").specs] == [
        "by_shop"
    ]
    (home / "pipeline.yaml").write_text(
        DECLARATION.replace("policy:", "  others:\n    files: {path: data/others, format: csv, schema: a INT}\npolicy:")
    )
    [*whole], [*selected] = df.deltafold_assets(home).keys, df.deltafold_assets(home, select="paid").keys
    assert dg.AssetKey(["shop", "landed", "others"]) in whole and len(whole) == 5 and len(selected) == 2
    (home / "pipeline.yaml").write_text(DECLARATION)
    assert df.landing_assets(home) == []
    with pytest.raises(DeclarationError, match=r"shop: it has datasets, so it is a step of its own\. Name its folder"):
        df.deltafold_assets(home.parent)
    with pytest.raises(UsageError, match="project shop: a maintained view cannot read its datasets"):
        df.maintained_view("top", "select * from x", sources={"x": df.deltafold_assets(home)}, warehouse="w")
    steps = df.pipeline_steps(home.parent, translator=Prefixed(source_assets={"orders": ["raw", "orders"]}))
    [step] = steps
    assert df.get_asset_key_for_dataset(steps, "paid") == dg.AssetKey(["marts", "paid"])
    [pooled] = df.pipeline_steps(home.parent, pool="lake")
    assert isinstance(pooled.node_def, dg.OpDefinition) and pooled.node_def.pool == "lake"
    [itself] = df.pipeline_steps(home)
    assert itself.keys == df.deltafold_assets(home).keys
    assert df.get_asset_key_for_source(itself, "orders") == dg.AssetKey(["shop", "landed", "orders"])
    with pytest.raises(UsageError, match=r"source orders: it stands for several assets \(raw/orders, shop/landed/or"):
        df.get_asset_key_for_source([*steps, itself], "orders")
    assert {key.to_user_string() for key in step.keys} == {
        "raw/orders", "marts/paid", "marts/by_shop", "marts/a_best",
    }  # fmt: skip
    (home / "pipeline.yaml").write_text(DECLARATION.removeprefix("group: finance\n"))
    monkeypatch.setenv(catalogue.FOLDER_VARIABLE, str(home.parent))
    for defs in (df.load_definitions(), runpy.run_path(str(PROJECT / "assets" / "definitions.py"))["defs"]):
        located = defs.resolve_asset_graph()
        assert {located.get(key).group_name for key in located.materializable_asset_keys} == {"shop"}
    (home / "datasets" / "paid.sql").write_text("select * from a_best")
    [broken] = df.pipeline_steps(home.parent)
    assert "read each other in a cycle" in str(broken.specs_by_key[dg.AssetKey("shop")].description)


def test_a_component_takes_a_project(home: Path) -> None:
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(df.DeltafoldPipeline, "marts")
        (folder / "defs.yaml").write_text(
            "type: deltafold.dagster.DeltafoldPipeline\nattributes:\n  pipelines: shop\n  equals_batch: false\n"
            "  source_assets: {orders: raw/orders}\n  select: +by_shop\n"
        )
        shutil.move(home, folder / "shop")
        with sandbox.load_component_and_build_defs(folder) as (_, defs):
            keys = {key.to_user_string() for key in defs.resolve_asset_graph().materializable_asset_keys}
    assert keys == {"raw/orders", "shop/paid", "shop/by_shop"}


def test_a_component_names_dbts_tables_from_the_folder_of_the_project(tmp_path: Path) -> None:
    """Protects from tables that are looked for where the process was started; and from a misspelt source."""
    manifest = compiled(tmp_path, model("best", "select 1 a", "table", depends_on={"nodes": ["seed.shop.countries"]}))
    declared = f"type: deltafold.dagster.DeltafoldPipeline\nattributes: {{pipelines: {manifest}, tables: data/lake"
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(df.DeltafoldPipeline, "marts")
        (folder / "defs.yaml").write_text(f"{declared}}}\n")
        with sandbox.load_component_and_build_defs(folder) as (_, defs):
            project = step_of(defs.resolve_assets_def("best")).project
        (folder / "defs.yaml").write_text(f"{declared}, source_assets: {{country: raw/countries}}}}\n")
        with (
            pytest.raises(
                Exception, match="Error while building definitions for marts"
            ) as refused,  # of no public class
            sandbox.load_component_and_build_defs(folder),
        ):
            pass
    assert "has no source `country`. Did you mean `countries`?" in str(refused.value.__cause__)
    assert project is not None and project.files.tables == str(sandbox.project_root / "data" / "lake")


def test_a_folder_of_queries_is_refreshed_as_one(spark: SparkSession, in_memory: Lake, home: Path) -> None:
    datasets = df.deltafold_assets(home)
    with dg.DagsterInstance.ephemeral() as instance:
        done = materialise([datasets], instance=instance)
        assert done.success
        first = events(done)
        assert [*first] == ["shop/landed/orders", "shop/paid", "shop/by_shop", "shop/a_best"]
        assert [check.passed for check in done.get_asset_check_evaluations()] == [True] * 3
        shown = first["shop/by_shop"].metadata
        assert shown["dagster/row_count"].value == 2
        schema, lineage = cast(Any, shown["dagster/column_schema"]), cast(Any, shown["dagster/column_lineage"])
        assert [column.name for column in schema.schema.columns] == ["shop", "total", "n"]
        assert lineage.lineage.deps_by_column["shop"] == [dg.TableColumnDep(dg.AssetKey(["shop", "paid"]), "shop")]
        tags = first["shop/by_shop"].tags or {}
        assert tags["dagster/input_data_version/shop/paid"] == (first["shop/paid"].tags or {})["dagster/data_version"]
        (home / "data" / "orders" / "b.csv").write_text("id,shop,amount\n4,x,9\n")
        done = materialise([datasets], "shop/landed/orders", "shop/by_shop", instance=instance)
        assert done.success and [*events(done)] == ["shop/landed/orders", "shop/by_shop"]
        assert events(done)["shop/by_shop"].metadata["verdict"].value == "nothing to do"  # `paid` is as it was
        done = materialise([datasets], "shop/paid", "shop/by_shop", instance=instance)
        assert events(done)["shop/by_shop"].metadata["verdict"].value != "nothing to do"
        (home / "datasets" / "by_shop.sql").write_text("select shop, id / amount from paid where sum(id) > 1")
        done = materialise([datasets], instance=instance)
        [failure] = [event for event in done.all_node_events if event.is_step_failure]
        assert not done.success and "by_shop.sql, line 1: Spark cannot analyse" in str(failure.step_failure_data)
        assert [*events(done)] == ["shop/landed/orders", "shop/paid"]  # what does not read it


class Retried(df.SparkResource):
    """Lets Dagster try a step again whatever failed; dropped: where a further input file is before each attempt."""

    dropped: str = ""

    def run_project(self, context, files, task):
        attempt = context.retry_number
        if self.dropped:
            (Path(self.dropped) / f"{attempt}.csv").write_text(f"id,shop,amount\n{attempt},z,{attempt}\n")
        result = super().run_project(context, files, task)
        return replace(result, faults={name: replace(fault, again=True) for name, fault in result.faults.items()})


def test_a_dataset_that_fails_stops_its_readers(spark: SparkSession, in_memory: Lake, home: Path) -> None:
    """And shows no value; a further attempt of the step materialises nothing twice."""
    (home / "datasets" / "by_shop.sql").write_text("select shop, sum(cast(shop as int)) total from paid group by shop")
    (home / "datasets" / "other.sql").write_text("select count(*) n from orders")
    datasets = df.deltafold_assets(home, retry_policy=dg.RetryPolicy(max_retries=1), equals_batch=False)
    done = dg.materialize([datasets], resources={"deltafold": Retried()}, raise_on_error=False)
    assert not done.success and [event for event in done.all_events if event.is_step_restarted]
    made = [each.asset_key for each in done.get_asset_materialization_events()]
    assert sorted(key.path[-1] for key in made if key) == ["orders", "other", "paid"]
    texts = "\n".join(str(event.message) for event in done.all_events)
    assert "'x'" not in texts and "'y'" not in texts


def test_a_further_attempt_reads_one_version_of_each_source(spark: SparkSession, in_memory: Lake, home: Path) -> None:
    """Protects from a reader of datasets that two attempts refreshed to different versions of a source."""
    (home / "datasets" / "by_shop.sql").write_text("select shop, sum(cast(shop as int)) total from paid group by shop")
    (home / "datasets" / "a_best.sql").write_text("select count(*) n from paid cross join orders")
    datasets = df.deltafold_assets(home, retry_policy=dg.RetryPolicy(max_retries=1))
    resource = Retried(dropped=str(home / "data" / "orders"))
    done = dg.materialize([datasets], resources={"deltafold": resource}, raise_on_error=False)
    made = [each.asset_key for each in done.get_asset_materialization_events()]
    assert sorted(key.path[-1] for key in made if key) == ["a_best", "a_best", "orders", "orders", "paid", "paid"]
    checks = [check for check in done.get_asset_check_evaluations() if check.asset_key.path[-1] == "a_best"]
    assert [check.passed for check in checks] == [True, True]


def test_a_dataset_that_cannot_be_read_as_it_is_fails_the_step(
    spark: SparkSession, in_memory: Lake, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from a step that succeeds although its only dataset was skipped."""
    datasets = df.deltafold_assets(home, equals_batch=False, retry_policy=None)

    def fail(view: ResolvedView, state: object, progress: object) -> None:
        raise StateError(f"view {view.view.name}: its journal is damaged. Rebuild it.")

    with dg.DagsterInstance.ephemeral() as instance:
        assert materialise([datasets], instance=instance).success
        monkeypatch.setattr(ResolvedView, "keep_within", fail)
        done = materialise([datasets], "shop/by_shop", instance=instance)
    [failure] = [event for event in done.all_node_events if event.is_step_failure]
    assert "view paid: its journal is damaged" in str(failure.step_failure_data) and not events(done)


def test_a_dbt_project_has_the_keys_of_dagster_dbt(tmp_path: Path) -> None:
    meta = {"dagster": {"asset_key": ["mine", "best"], "owners": ["ada@example.org"], "group": "core"}}
    manifest = compiled(
        tmp_path,
        model("stg", "select * from raw.orders", "view", depends_on={"nodes": ["source.shop.raw.orders"]}),
        model("facts", "select * from shop.stg", "incremental", depends_on={"nodes": ["model.shop.stg"]},
              config={"schema": "core"}, columns={"a": {"name": "a", "data_type": "int", "description": "An a"}}),
        model("best", "select 1 a", "table", depends_on={"nodes": ["model.shop.facts", "seed.shop.countries"]},
              config={"meta": meta}, tags=["nightly"]),
    )  # fmt: skip
    content = json.loads(manifest.read_text())
    source = {"unique_id": "source.shop.raw.orders", "package_name": "shop", "source_name": "raw", "name": "orders"}
    content["sources"] = {source["unique_id"]: source | {"relation_name": "`raw`.`orders`"}}
    other = source | {"unique_id": "source.crm.raw.orders", "package_name": "crm", "relation_name": "`crm`.`orders`"}
    content["sources"][other["unique_id"]] = other | {"meta": {"dagster": {"asset_key": ["crm", "orders"]}}}
    content["nodes"]["model.shop.facts"]["depends_on"]["nodes"].append(other["unique_id"])
    manifest.write_text(json.dumps(content))
    (manifest.parent.parent / "dbt_project.yml").write_text("name: shop\n")
    for path in (manifest, manifest.parent.parent):
        datasets = df.deltafold_assets(path)
        deps = {spec.key: {dep.asset_key for dep in spec.deps} for spec in datasets.specs}
        facts, best = dg.AssetKey(["core", "facts"]), dg.AssetKey(["mine", "best"])
        read = {dg.AssetKey(["raw", "orders"]), dg.AssetKey(["crm", "orders"])}
        assert deps == {facts: read, best: {facts, dg.AssetKey("countries")}}
    spec = datasets.specs_by_key[best]
    assert (spec.group_name, [*spec.owners], spec.tags["nightly"]) == ("core", ["ada@example.org"], "")
    [column] = datasets.specs_by_key[facts].metadata["dagster/column_schema"].schema.columns
    assert (column.name, column.type, column.description) == ("a", "int", "An a")
    translator = df.DeltafoldTranslator({"raw.orders": "lake/orders", "crm.raw.orders": "crm"}, ["dbt"])
    chosen = df.deltafold_assets(manifest, select="facts", translator=translator)
    [spec] = chosen.specs
    assert spec.key == dg.AssetKey(["dbt", "core", "facts"])
    assert {dep.asset_key for dep in spec.deps} == {dg.AssetKey(["lake", "orders"]), dg.AssetKey("crm")}


DBT = """\
#!{python}
import json, sys
from pathlib import Path
project, target = Path.cwd(), Path(sys.argv[sys.argv.index("--target-path") + 1])
assert sys.argv[1:4] == ["--quiet", "compile", "--full-refresh"], sys.argv
if not (project / "models" / "one.sql").exists():
    sys.exit("Compilation Error: one.sql")
with open(project / "calls", "a") as calls:
    print("compiled", file=calls)
content = json.loads((target / "compiled.json").read_text())
for model in (project / "models").glob("*.sql"):
    node = content["nodes"]["model.shop.one"] | {{"unique_id": f"model.shop.{{model.stem}}", "name": model.stem}}
    node |= {{"relation_name": f"`shop`.`{{model.stem}}`", "fqn": ["shop", model.stem]}}
    content["nodes"][node["unique_id"]] = node
(target / "manifest.json").write_text(json.dumps(content))
"""


def test_a_dbt_project_is_compiled_while_developing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `prepare_if_dev` of dagster-dbt: only under its variable, only after a change, and only where dbt is."""
    manifest = compiled(tmp_path, model("one", "select 1 a", "table"))
    project, kept = manifest.parent.parent, manifest.with_name("compiled.json")
    manifest.rename(kept)
    (project / "dbt_project.yml").write_text("name: shop\nmodel-paths: [models]\n")
    (project / "models").mkdir()
    (project / "models" / "one.sql").write_text("select 1 a")
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "dbt").write_text(DBT.format(python=sys.executable))
    (commands / "dbt").chmod(0o755)
    monkeypatch.setenv(DEVELOPING, "1")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with (
        pytest.raises(DeclarationError, match=r"there is no such file\. Run dbt compile"),
        pytest.warns(DeltafoldWarning, match="files of the project are newer, and there is no dbt to compile them"),
    ):
        df.deltafold_assets(project)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    assert df.deltafold_assets(project).keys == {dg.AssetKey("one")}
    (project / "models" / "two.sql").write_text("select 2 a")
    monkeypatch.delenv(DEVELOPING)
    with pytest.warns(DeltafoldWarning, match=r"models/two\.sql changed since dbt wrote it"):
        assert df.deltafold_assets(project).keys == {dg.AssetKey("one")}
    monkeypatch.setenv(DEVELOPING, "1")
    for _ in range(2):
        assert df.deltafold_assets(project).keys == {dg.AssetKey("one"), dg.AssetKey("two")}
    assert (project / "calls").read_text().split() == ["compiled"] * 2
    (project / "models" / "one.sql").unlink()
    with pytest.raises(DeclarationError, match=r"manifest\.json: dbt compile failed\. Compilation Error: one\.sql"):
        df.deltafold_assets(project)
    assert manifest.is_file()


def test_tests_of_dbt_are_excluded_by_a_selection(tmp_path: Path) -> None:
    manifest = compiled(tmp_path, model("one", "select 1 a", "table"), model("two", "select 1 a", "table"))
    content = json.loads(manifest.read_text())
    for name, of, generic in (("unique_one", "one", "unique"), ("own_one", "one", ""), ("unique_two", "two", "unique")):
        content["nodes"][name] = {
            "unique_id": name, "resource_type": "test", "name": name, "fqn": ["shop", name],
            "compiled_code": "select 1", "attached_node": f"model.shop.{of}",
            "depends_on": {"nodes": [f"model.shop.{of}"]},
            **({"test_metadata": {"name": generic}} if generic else {}),
        }  # fmt: skip
    manifest.write_text(json.dumps(content))

    def names(**options: Any) -> set[str]:
        return {key.name for key in df.deltafold_assets(manifest, **options).check_keys} - {"equals_batch"}

    assert names() == {"unique_one", "own_one", "unique_two"}
    assert names(exclude="test_name:unique") == {"own_one"}
    assert names(select="one", exclude=["own_one"]) == {"unique_one"}
    assert not names(exclude="test_type:data")
    assert names(exclude="one,test_type:generic") == {"own_one", "unique_two"}
    for select in ([], "", [" "]):
        with pytest.raises(DeclarationError, match=r"select: it is empty\. Leave it out"):
            df.deltafold_assets(manifest, select=select)
    datasets = df.deltafold_assets(manifest, resource_key=None)
    graph = dg.Definitions([datasets]).resolve_asset_graph()
    chosen = df.select_datasets(datasets, select="one", exclude="test_name:unique")
    assert {key.name for key in chosen.resolve_checks(graph)} == {"equals_batch", "own_one"}
    assert chosen.resolve(graph) == {dg.AssetKey("one")}
    less = df.deltafold_assets(manifest, resource_key=None, exclude="test_name:unique")
    nightly = df.selection_schedule(less, name="nightly", cron_schedule="0 3 * * *", exclude="test_type:data")
    job = dg.Definitions([less], schedules=[nightly]).resolve_job_def("nightly")
    assert {key.name for key in job.asset_layer.asset_graph.asset_check_keys} >= {"equals_batch"}


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    name = f"dagster_{uuid4().hex[:8]}"
    cast(Any, spark).sql(f"CREATE DATABASE {name} LOCATION '{tmp_path / 'tables'}'")
    yield name
    cast(Any, spark).sql(f"DROP DATABASE {name} CASCADE")


def test_a_dbt_project_equals_its_batch(spark: SparkSession, tmp_path: Path, database: str) -> None:
    orders = tmp_path / "lake" / "raw" / "orders"
    sql = cast(Any, spark).sql
    sql(f"create table delta.`{orders}` using delta as select id, id % 3 customer, id * 10 amount from range(12)")
    batch = "select customer, sum(amount) revenue from {} group by customer"
    depends = {"nodes": ["model.shop.by_customer"]}
    manifest = compiled(
        tmp_path,
        model("by_customer", batch.format("raw.orders"), "table", database),
        model("best", f"select max(revenue) m from {database}.by_customer", "table", database, depends_on=depends),
    )
    content, failing = json.loads(manifest.read_text()), f"select 1 from {database}.by_customer where revenue "
    for number, (of, name, query, config) in enumerate([
        ("by_customer", "positive", f"{failing} <= 0", {"severity": "ERROR"}),
        ("by_customer", "small", f"{failing} > 200", {"severity": "WARN"}),
        ("by_customer", "few", f"{failing} > 9", {}),
        ("by_customer", "some", f"{failing} > 9", {"limit": 1, "error_if": "> 1"}),
        ("best", "null", f"select 1 a from {database}.best where m < 0", {"severity": "warn", "fail_calc": "max(a)"}),
        ("best", "wrong", "select nothing", {"severity": "warn"}),
        ("best", "few", f"select 1 from {database}.best where m < 0", {}),
    ]):  # fmt: skip
        id = f"test.shop.{name}.{number}"
        content["nodes"][id] = {
            "unique_id": id, "resource_type": "test", "name": name, "fqn": ["shop", name],
            "compiled_code": query, "attached_node": f"model.shop.{of}", "config": config,
        }  # fmt: skip
    source = {"unique_id": "source.shop.raw.orders", "package_name": "shop", "source_name": "raw", "name": "orders"}
    content["sources"] = {source["unique_id"]: source | {"relation_name": "`raw`.`orders`"}}
    content["nodes"]["model.shop.by_customer"]["depends_on"] = {"nodes": [source["unique_id"]]}
    manifest.write_text(json.dumps(content))
    datasets = df.deltafold_assets(manifest, tables=str(tmp_path / "lake"), equals_batch=False)
    with dg.DagsterInstance.ephemeral() as instance:
        done = materialise([datasets], instance=instance)
        assert [*events(done)] == ["by_customer", "best"]
        checks = {
            f"{check.asset_key.path[-1]}/{check.check_name}": (check.passed, check.severity.value)
            for check in done.get_asset_check_evaluations()
        }
        assert checks == {
            "by_customer/positive": (True, "WARN"), "by_customer/small": (False, "WARN"),
            "by_customer/few": (False, "ERROR"), "by_customer/some": (False, "WARN"),
            "best/null": (False, "ERROR"), "best/wrong": (False, "ERROR"), "best/few": (True, "WARN"),
        }  # fmt: skip
        texts = {check.check_name: check.description or "" for check in done.get_asset_check_evaluations()}
        assert texts["some"] == "count(*) is 1." and "fail_calc `max(a)` is NULL" in texts["null"]
        assert events(done)["by_customer"].metadata["locations"].value == {"raw.orders": str(orders)}
        sql(f"insert into delta.`{orders}` values (20, 1, 500), (21, 7, 1)")
        [watched] = df.source_tables(datasets)
        observing = dg.Definitions(assets=[watched]).resolve_implicit_global_asset_job_def()
        [seen] = observing.execute_in_process(instance=instance).get_asset_observation_events()
        assert (seen.asset_observation_data.asset_observation.tags or {})["dagster/data_version"] == "1"
        assert [*events(materialise([datasets], "by_customer", instance=instance))] == ["by_customer"]
    expected = sql(batch.format(f"delta.`{orders}`")).collect()
    assert not difference(spark.table(f"{database}.by_customer").collect(), expected)
    assert [row.m for row in spark.table(f"{database}.best").collect()] == [260]  # as it was


def test_a_spark_pipeline_is_described_by_a_dry_run(
    spark: SparkSession, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    """Its assets are then loaded without Spark; a changed file is refused until it is described again.

    While developing, that is done when the assets are loaded.
    """
    pytest.importorskip("pyspark.pipelines.cli")
    sql = cast(Any, spark).sql
    sql(f"create table {database}.orders using delta as select id, id % 3 customer, id * 10 amount from range(12)")
    home = tmp_path / "sdp"
    (home / "transformations").mkdir(parents=True)
    spec = home / "spark-pipeline.yml"
    spec.write_text(
        f"name: shop\nstorage: file://{tmp_path}/storage\ndatabase: {database}\n"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
    (home / "transformations" / "marts.sql").write_text(
        "CREATE STREAMING TABLE seen AS SELECT * FROM STREAM orders;\n"
        "CREATE MATERIALIZED VIEW by_customer COMMENT 'Sums' AS SELECT customer, sum(amount) s FROM seen GROUP BY 1;\n"
        "CREATE MATERIALIZED VIEW best AS SELECT max(s) m FROM by_customer;\n"
    )
    with pytest.raises(
        DeclarationError, match=r"only Spark reads its files\. Run `deltafold dry-run --describe` there"
    ):
        df.deltafold_assets(home)
    described = call("dry-run", "--spec", str(spec), "--describe")
    assert described.exit_code == 0, described.output
    datasets = df.deltafold_assets(home, equals_batch=False)
    deps = {spec.key.to_user_string(): [dep.asset_key.to_user_string() for dep in spec.deps] for spec in datasets.specs}
    assert deps == {"seen": ["orders"], "by_customer": ["seen"], "best": ["by_customer"]}
    with dg.DagsterInstance.ephemeral() as instance:
        done = materialise([datasets], instance=instance)
        assert done.success
        first = events(done)
        assert [*first] == ["seen", "by_customer", "best"] and first["seen"].metadata["rows"].value == 12
        sql(f"insert into {database}.orders values (20, 1, 500)")
        assert [*events(materialise([datasets], "seen", "by_customer", instance=instance))] == ["seen", "by_customer"]
    expected = sql(f"select customer, sum(amount) from {database}.orders group by 1").collect()
    assert not difference(spark.table(f"{database}.by_customer").collect(), expected)
    assert [row.m for row in spark.table(f"{database}.best").collect()] == [260]
    (home / "transformations" / "more.sql").write_text("CREATE MATERIALIZED VIEW more AS SELECT 1 a")
    with pytest.raises(DeclarationError, match="files of the project have changed"):
        df.deltafold_assets(home)
    monkeypatch.setenv(DEVELOPING, "1")
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    if long:
        publish(spark, tmp_path / "host.json")  # for the process that describes it
        monkeypatch.setenv(HOST_VARIABLE, f"{tmp_path}/host.json")
        assert dg.AssetKey("more") in df.deltafold_assets(home).keys
    spec.write_text("name: shop\nlibrarys: []\n")
    with pytest.raises(DeclarationError, match=r"deltafold dry-run --describe failed\. .*librarys"):
        df.deltafold_assets(home)
