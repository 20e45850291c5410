"""A dbt project of 56 models in three layers: as dbt compiled it once, and, by night, as dbt compiles it now."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.pipelines.dbt import load_project
from deltafold.pipelines.open_project import OpenProject
from deltafold.pipelines.project_run import run_project
from deltafold.pipelines.project_selection import Selection
from deltafold.pipelines.selection import Nodes
from tests.night import night
from tests.pipelines.dbt_project import (
    CHANGES,
    COMPILED,
    EXAMPLE,
    PROJECT,
    Dbt,
    create_tables,
    drop_tables,
    reduce_manifest,
    sql,
)
from tests.properties.comparing import difference

SELECTIONS = [
    "fct_*",
    "marts.*",
    "marts.core.fct_*",
    "*.finance.*",
    "shop.marts.core",
    "tag:core,path:models/marts +kpis",
    "order_summary",
    "order_summary.v2 order_summary_v1",
    "2+kpis",
    "source:raw.orders+2",
    "@dim_stores",
    "base_payments+ regions+1",
    "models/marts/*/rev*.sql",
    "path:models/marts/finance",
    "product_prices+",
    "path:models/**/dim_*.sql",
    "tag:*ly,tag:core",
]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """The manifest that is kept in the repository, in a folder of its own."""
    shutil.copytree(COMPILED.parent, tmp_path / "shop" / "target")
    return tmp_path / "shop" / "target" / COMPILED.name


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    create_tables(spark, tmp_path / "lake")
    yield
    drop_tables(spark)


def refresh(manifest: Path, spark: SparkSession, *select: str) -> dict[str, str]:
    """Refresh datasets; return the sentence of each."""
    opened, selection = OpenProject(load_project(manifest), spark), Selection(select=select)
    opened.open(selection.work(opened.reads))
    report = run_project(opened, selection, None)
    assert not [dataset.sentence for dataset in report.datasets if not dataset.ok]
    return {dataset.name: dataset.sentence for dataset in report.datasets}


def create_oracle(manifest: Path, spark: SparkSession) -> dict[str, str]:
    """Create each model as a SQL view in databases of its own, in dbt's order; return the name of each kept one's."""
    content = json.loads(manifest.read_text())
    models = {id: node for id, node in content["nodes"].items() if node["resource_type"] == "model"}
    names, done = dict[str, str](), set[str]()

    def rename(text: str) -> str:
        return re.sub(r"\bshop_(staging|intermediate|marts)\b", r"oracle_shop_\1", text)

    def create(id: str) -> None:
        if id in done or id not in models:
            return
        done.add(id)
        for read in models[id]["depends_on"]["nodes"]:
            create(read)
        if models[id]["config"]["materialized"] == "ephemeral":
            return
        name = rename(models[id]["relation_name"])
        sql(spark, f"create database if not exists {name.rpartition('.')[0]}")
        sql(spark, f"create view {name} as {rename(models[id]['compiled_code'])}")
        names[models[id]["relation_name"]] = name

    for id in models:
        create(id)
    return names


def test_the_project_that_dbt_compiled(manifest: Path) -> None:
    project = load_project(manifest)
    assert project.refusals == ()
    kept = [dataset for dataset in project.datasets if dataset.kept]
    assert (len(project.datasets), len(kept)) == (50, 37)
    assert next(dataset for dataset in kept if "fct_orders" in dataset.name).policy == "incremental"
    assert project.nodes is not None
    chosen = Nodes.of(project.nodes).select(["+order_summary.v2,tag:nightly int_sessions"], ["models/**/dim_*.sql"])
    assert set(chosen) == {"shop_marts.fct_orders", "shop_marts.order_summary_v2", "shop_intermediate.int_sessions"}


@night
def test_a_part_of_the_project(spark: SparkSession, tables: None, manifest: Path) -> None:
    """A chain through all layers, with ephemeral models and a versioned one, selected as dbt selects it."""
    done = refresh(manifest, spark, "+order_summary.v2")
    oracle = create_oracle(manifest, spark)
    for name in done:
        assert not difference(spark.table(oracle[name]).collect(), spark.table(name).collect()), name


@night
def test_the_project_as_dbt_compiles_it(spark: SparkSession, tables: None, tmp_path: Path) -> None:
    """Each model equals Spark's batch after every change; and dbt selects the same models as we do."""
    dbt = Dbt(tmp_path / "dbt")
    dbt.compile()
    assert reduce_manifest(dbt.manifest) == json.loads(COMPILED.read_text()), f"compile {PROJECT} again"
    oracle = create_oracle(dbt.manifest, spark)
    for changes in ((), *CHANGES):
        sql(spark, *changes)
        done = refresh(dbt.manifest, spark)
        assert len(done) == 37
        for name in done:
            assert not difference(spark.table(oracle[name]).collect(), spark.table(name).collect()), (name, changes)
    project = load_project(dbt.manifest)
    assert project.nodes is not None
    datasets = {node.dataset: node.id for node in project.nodes if node.dataset}
    for text, listed in dbt.list_models(SELECTIONS).items():
        chosen = Nodes.of(project.nodes).select([text], [])
        assert {datasets[name] for name in chosen} == listed & {*datasets.values()}, text


@night
@pytest.mark.own_spark
def test_the_example_as_dbt_compiles_it(tmp_path: Path) -> None:
    """Protects from a manifest in docs/examples/shop of other models than those beside it."""
    dbt = Dbt(tmp_path, EXAMPLE)
    dbt.compile()
    assert reduce_manifest(dbt.manifest) == json.loads((EXAMPLE / "target" / "manifest.json").read_text())
