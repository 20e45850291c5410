"""Runs in a user's project: a view over an asset of theirs, and datasets of a folder of which one is broken."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox
from pyspark.sql import SparkSession

import deltafold.dagster as df
from deltafold.algebra.errors import UsageError
from deltafold.dagster.metadata import INPUT_VERSION
from deltafold.lake.protocol import Lake
from deltafold.pipelines import catalogue
from tests.dagster import sales
from tests.pipelines.declared import write

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
ORDERS, REVENUE = dg.AssetKey(["raw", "orders"]), dg.AssetKey(["marts", "revenue"])
LOW, TOP = dg.AssetKey(["shop", "sales"]), dg.AssetKey(["shop", "top"])


class Session(dg.ConfigurableResource):
    """A resource of the user's, which has a session."""

    @property
    def spark_session(self) -> SparkSession:
        found = SparkSession.getActiveSession()
        assert found is not None
        return found


def test_a_view_follows_an_asset_of_the_users(tmp_path: Path, spark: SparkSession) -> None:
    lake = str(tmp_path / "orders")

    @dg.asset(key=ORDERS)
    def orders(session: Session) -> None:
        rows = session.spark_session.createDataFrame([("a", 3), ("a", 4), ("b", 5)], "customer STRING, amount INT")
        rows.write.format("delta").mode("overwrite").save(lake)

    revenue = df.maintained_view(
        dg.AssetSpec(REVENUE, owners=["team:finance"]),
        "SELECT customer, sum(amount) AS revenue FROM orders GROUP BY customer",
        sources={"orders": df.TableSource(lake, asset="raw/orders")},
        warehouse=str(tmp_path / "warehouse"),
        equals_batch="100%",
        resource_key="session",
    )

    customers = df.maintained_view(
        "customers",
        "SELECT count(*) AS n FROM revenue",
        sources={"revenue": revenue},
        warehouse=str(tmp_path / "warehouse"),
        resource_key="session",
    )

    def run(instance: dg.DagsterInstance, *keys: dg.AssetKey) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [orders, revenue, customers], instance=instance, selection=list(keys), resources={"session": Session()}
        )

    with dg.DagsterInstance.ephemeral() as instance:
        assert [check.passed for check in run(instance, ORDERS, REVENUE).get_asset_check_evaluations()] == [True]
        spark.sql(f"DELETE FROM delta.`{lake}` WHERE customer = 'b'")
        below, above = run(instance, dg.AssetKey("customers")).get_asset_materialization_events()
        assert (below.asset_key, above.asset_key) == (REVENUE, dg.AssetKey("customers"))
        assert (above.materialization.tags or {})[f"{INPUT_VERSION}/marts/revenue"] == "1.2"
        second = run(instance, REVENUE)
    assert [check.passed for check in second.get_asset_check_evaluations()] == [True]
    [event] = second.get_asset_materialization_events()
    assert event.materialization.metadata["verdict"].value == "nothing to do"
    assert below.materialization.metadata["verdict"].value == "applied"
    shown: Any = event.materialization.metadata
    assert shown["dagster/row_count"].value == 1 and shown["epoch"].value == 2
    columns = shown["dagster/column_schema"].schema.columns
    assert [(column.name, column.type) for column in columns] == [("customer", "string"), ("revenue", "bigint")]
    assert shown["dagster/column_lineage"].lineage.deps_by_column == {
        "customer": [dg.TableColumnDep(ORDERS, "customer")],
        "revenue": [dg.TableColumnDep(ORDERS, "amount")],
    }
    assert str(tmp_path / "warehouse" / "marts__revenue") in str(shown["dagster/uri"].value)
    assert (event.materialization.tags or {})["dagster/data_version"] == "1.2"


def test_a_broken_dataset_stops_no_other_and_a_subset_is_refreshed(
    tmp_path: Path, spark: SparkSession, in_memory: Lake
) -> None:
    low = sales.declare(tmp_path)
    declaration = "sources:\n  {0}: {{view: {0}}}\nwarehouse: warehouse\n"
    write(tmp_path, "broken", declaration.format("sales"), sql="SELECT nothing FROM sales")
    write(tmp_path, "above", declaration.format("broken"), sql="SELECT * FROM broken")
    write(tmp_path, "top", declaration.format("sales"), sql="SELECT count(*) AS n FROM sales")
    sales.drop(low, "2013-01-01", [(1, "a", 5), (2, "b", 3)])
    translator = df.DeltafoldTranslator(key_prefix=["shop"])
    datasets = df.deltafold_assets(tmp_path, translator=translator, retry_policy=None, resource_key=None)
    landings = df.landing_assets(tmp_path, translator=translator, pool="lake", resource_key=None)
    assert {landing.op.pool for landing in landings} == {"lake"}
    assert df.get_asset_key_for_dataset(datasets, "top") == TOP
    with pytest.raises(UsageError, match=r"dataset tap: these assets have none of this name\. Did you mean `top`"):
        df.get_asset_key_for_dataset([datasets], "tap")
    assert df.get_asset_key_for_source(datasets, "sales") == dg.AssetKey(["shop", "sales", "landed", "sales"])
    with pytest.raises(UsageError, match=r"source sale: these assets read none of this name\. Did you mean `sales`"):
        df.get_asset_key_for_source([datasets], "sale")

    def run(*keys: dg.AssetKey, **more) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [*landings, datasets], instance=instance, selection=list(keys), raise_on_error=False, **more
        )

    with dg.DagsterInstance.ephemeral() as instance:
        assert run(dg.AssetKey(["shop", "sales", "landed", "sales"]), partition_key="2013-01-01").success
        whole = run(*datasets.keys)
        assert {event.asset_key for event in whole.get_asset_materialization_events()} == {LOW, TOP}
        [failed] = whole.get_step_failure_events()
        failure = failed.step_failure_data.user_failure_data
        assert failure is not None and "nothing" in str(failure.description)
        sales.drop(low, "2013-01-01", [(1, "a", 5), (2, "b", 3), (3, "c", 1)])
        catalogue.open(low, spark)[0].land("sales")
        above = run(TOP)
        assert above.success
        assert {event.asset_key for event in above.get_asset_materialization_events()} == {LOW, TOP}
        checked = {check.asset_key for check in above.get_asset_check_evaluations()}
        assert checked == {TOP} and all(check.passed for check in above.get_asset_check_evaluations())


def test_a_component_materialises_a_subset(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its defs.yaml, with the Spark of the step: what the subset reads is refreshed with it, and nothing else."""
    lake = str(tmp_path / "orders")
    rows = spark.createDataFrame([("a", 3), ("a", 4), ("b", 5)], "customer STRING, amount INT")
    rows.write.format("delta").save(lake)
    monkeypatch.setenv("ORDERS", lake)
    with create_defs_folder_sandbox() as sandbox, dg.DagsterInstance.ephemeral() as instance:
        folder = sandbox.scaffold_component(df.DeltafoldPipeline, "shop")
        over = "sources:\n  customers: {view: customers}\n"
        write(folder / "pipelines", "count", over, sql="SELECT count(*) AS n FROM customers")
        write(folder / "pipelines", "best", over, sql="SELECT max(largest) AS best FROM customers")
        with sandbox.load_component_and_build_defs(folder) as (_, defs):
            job = defs.resolve_implicit_global_asset_job_def()
            done = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("count")])
            answer = catalogue.open(catalogue.load("count", folder / "pipelines"), spark)[1].answer().collect()
    refreshed = [event.asset_key for event in done.get_asset_materialization_events()]
    assert refreshed == [dg.AssetKey("customers"), dg.AssetKey("count")]
    assert [(check.asset_key.to_user_string(), check.passed) for check in done.get_asset_check_evaluations()] == [
        ("count", True)
    ]
    assert [tuple(row) for row in answer] == [(2,)]
