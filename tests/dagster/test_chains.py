"""A pipeline over another one in Dagster: its place in the graph, what follows what, and a run of the upper one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from deltafold.dagster import metadata
from deltafold.pipelines import catalogue
from tests.dagster import sales
from tests.dagster.shown import located, outdated
from tests.night import night
from tests.pipelines.declared import write

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
LOW, TOP = dg.AssetKey("sales"), dg.AssetKey("top")


@pytest.fixture
def low(tmp_path: Path) -> catalogue.Pipeline:
    """The pipeline `sales`, under `top`."""
    pipeline = sales.declare(tmp_path)
    sql = "SELECT sales, count(*) AS shops FROM sales GROUP BY sales"
    write(tmp_path, "top", "sources:\n  sales: {view: sales}\nwarehouse: warehouse\n", sql=sql)
    return pipeline


def test_the_graph_shows_the_chain(tmp_path: Path, low: catalogue.Pipeline) -> None:
    graph = located(low).resolve_asset_graph()
    assert graph.get(TOP).parent_keys == {LOW}
    assert graph.get(LOW).child_keys == {TOP}
    assert graph.get(TOP).pools == {"top"}


def test_a_table_that_another_pipeline_lands_is_that_landing(tmp_path: Path, low: catalogue.Pipeline) -> None:
    """Protects from a twin of it in the graph, and from a source that is taken for the view of the same name."""
    landed, other = dg.AssetKey(["sales", "landed", "sales"]), dg.AssetKey(["other", "source", "sales"])
    for name, path in (("reader", f"{low.warehouse}/sources/sales"), ("other", "/lake/sales")):
        write(tmp_path, name, f"sources:\n  sales: {{delta: {path}}}\n", sql="SELECT count(*) AS n FROM sales")
    graph = located(low).resolve_asset_graph()
    assert graph.get(dg.AssetKey("reader")).parent_keys == {landed}
    assert graph.get(dg.AssetKey("other")).parent_keys == {other}
    assert graph.get(landed).is_materializable and graph.get(other).is_external


def test_a_view_follows_the_view_below(tmp_path: Path, low: catalogue.Pipeline) -> None:
    """It is behind as soon as the view below tells of another epoch, and not when that found nothing to do."""
    defined = located(low)

    def asked(instance: dg.DagsterInstance) -> bool:
        context = dg.build_sensor_context(instance, repository_def=defined.get_repository_def())
        return bool(defined.resolve_sensor_def("top_follow").evaluate_tick(context).run_requests)

    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:

        def report(key: dg.AssetKey, **told: Any) -> None:
            instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=told))

        assert not asked(instance)
        report(LOW, generation=1, epoch=1)
        assert asked(instance)
        report(TOP, generation=1, epoch=1, **{metadata.CONSUMED: {"sales": "1.1"}})
        assert not asked(instance)
        report(LOW, generation=1, epoch=1)
        assert not asked(instance)
        report(LOW, generation=2, epoch=1)
        assert asked(instance)
        run = instance.create_run_for_job(defined.resolve_job_def("sales_refresh"), status=dg.DagsterRunStatus.STARTED)
        assert not asked(instance)
        instance.report_run_failed(run)
        assert asked(instance)


@night
def test_a_run_refreshes_what_lies_below(tmp_path: Path, low: catalogue.Pipeline, spark: SparkSession) -> None:
    """One step, two views: both are materialised with their states, and none is behind or outdated afterwards."""
    sales.drop(low, "2013-01-01", [(1, "n", 2), (2, "n", 3), (3, "s", 4)])
    catalogue.open(low, spark)[0].land("sales")
    instance = dg.DagsterInstance.ephemeral()
    defined = located(low)
    assert defined.resolve_job_def("top_refresh").execute_in_process(instance=instance).success
    assert told(instance, LOW)[metadata.CONSUMED].value == {"sales": 0}
    assert told(instance, TOP)[metadata.CONSUMED].value == {"sales": "1.1"}
    assert "below it, sales epoch 1 applied" in str(told(instance, TOP)["summary"].value)
    assert told(instance, TOP)["dagster/row_count"].value == 2
    assert outdated(defined, instance) == {"sales/landed/sales": ["missing"]}


def told(instance: dg.DagsterInstance, key: dg.AssetKey) -> Mapping[str, dg.MetadataValue]:
    """The metadata of the latest materialisation."""
    event = instance.get_latest_materialization_event(key)
    assert event is not None and event.asset_materialization is not None
    return event.asset_materialization.metadata
