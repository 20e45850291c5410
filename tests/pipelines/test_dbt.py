"""Projects of dbt, by the manifest that `dbt compile --full-refresh` writes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import DeltafoldWarning
from deltafold.pipelines.dbt import describe_project, load_project
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.open_project import OpenProject
from deltafold.pipelines.project_run import run_project
from deltafold.pipelines.project_selection import Selection
from tests.properties.comparing import difference


def model(name: str, code: str | None, materialized: str, schema: str = "shop", **more: Any) -> dict[str, Any]:
    """Return a model as dbt-spark's manifest has it."""
    return {
        "unique_id": f"model.shop.{name}",
        "resource_type": "model",
        "name": name,
        "fqn": ["shop", name],
        "language": "sql",
        "config": {"materialized": materialized, **more.pop("config", {})},
        "relation_name": f"`{schema}`.`{name}`",
        "compiled_code": code,
        "original_file_path": f"models/{name}.sql",
        **more,
    }


def compiled(folder: Path, *models: Mapping[str, Any], full_refresh: bool = True) -> Path:
    """Write what dbt leaves in `target`, and return the manifest."""
    target = folder / "shop_project" / "target"
    target.mkdir(parents=True, exist_ok=True)
    nodes: dict[str, Any] = {f"model.shop.{node['name']}": node for node in models}
    for kind, name in (("test", "unique"), ("seed", "countries")):
        id = f"{kind}.shop.{name}"
        nodes[id] = {"unique_id": id, "resource_type": kind, "name": name, "fqn": ["shop", name]}
    (target / "manifest.json").write_text(json.dumps({"metadata": {"project_name": "shop"}, "nodes": nodes}))
    (target / "run_results.json").write_text(json.dumps({"args": {"full_refresh": full_refresh}, "results": []}))
    return target / "manifest.json"


def test_each_materialization(tmp_path: Path) -> None:
    """Protects from tables of what dbt does not store, and from an ephemeral model that is inlined twice."""
    policy = {"meta": {"deltafold": {"refresh_policy": "incremental_strict"}}}
    project = load_project(
        compiled(
            tmp_path,
            model("stg", "select 1 a", "view"),
            model("inside", "select 1 a", "ephemeral"),
            model("facts", "select 1 a", "incremental", description="What happened", config=policy),
            model("marts", "select 1 a", "table"),
        ),
        "/lake",
    )
    assert [(d.name, d.kept, d.policy) for d in project.datasets] == [
        ("`shop`.`stg`", False, "auto"),
        ("`shop`.`facts`", True, "incremental_strict"),
        ("`shop`.`marts`", True, "auto"),
    ]
    assert project.datasets[1].options.comment == "What happened"
    viewed = [node.id for node in project.nodes or () if node.config.get("materialized") == "view"]
    assert viewed == ["model.shop.stg"]  # no seed and no source, which have no such value
    assert (project.name, project.storage, project.tables, project.refusals) == (
        "shop", str(tmp_path / "shop_project" / ".warehouse"), "/lake", (),
    )  # fmt: skip


def test_refusals(tmp_path: Path) -> None:
    """Protects from a model of which only new rows would be read, by dbt's own filter, and from models left out."""
    manifest = compiled(
        tmp_path,
        model("facts", "select 1 a", "incremental"),
        model("learned", "pandas", "table", language="python"),
        model("parsed", None, "table"),
        model("other", "select 1 a", "dynamic_table"),
        model("wrong", "select 1 a", "table", config={"meta": {"deltafold": {"refresh_policy": "daily"}}}),
        full_refresh=False,
    )
    project = load_project(manifest)
    assert [each.refusal.partition(". ")[0] for each in project.datasets] == [
        "",
        "it is a model in python",
        "it is not compiled",
        "the materialization dynamic_table is not supported",
        "unknown meta.deltafold.refresh_policy 'daily'",
    ]
    with pytest.raises(DeclarationError, match=r"learned\.sql, line 1: `shop`.`learned`: it is a model in python"):
        describe_project(manifest)
    (manifest.parent / "run_results.json").unlink()
    for refused in (project, load_project(manifest)):
        assert [text.split(": ", 1)[1].partition(". ")[0] for text in refused.refusals] == [
            "incremental models (facts): nothing shows that they were compiled without dbt's own filter"
        ]


@pytest.mark.parametrize("text", [None, "{", "[]", '{"nodes": {}}'])
def test_what_is_no_manifest(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "manifest.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DeclarationError, match=r"manifest\.json"):
        load_project(path)


def test_a_project_equals_spark_after_every_change(spark: SparkSession, tmp_path: Path) -> None:
    """Three layers over two sources that are in no catalog, one of which dbt replaces; a view is inlined.

    A model that is refused stops its readers alone.
    """
    schema, raw, sql = f"dbt_{uuid4().hex[:8]}", tmp_path / "lake" / "raw", cast(Any, spark).sql

    def write(name: str, query: str) -> None:
        sql(f"create or replace table delta.`{raw / name}` using delta as {query}")

    write("orders", "select id, id % 3 customer, id * 10 amount, 'paid' status from range(12)")
    write("customers", "select * from values (0, 'de'), (1, 'fr') t(id, country)")
    staged = "select id as order_id, customer, amount from raw.orders where status = 'paid'"
    by_customer = (
        f"with __dbt__cte__known as (select id, country from raw.customers) select o.customer, k.country, "
        f"sum(o.amount) as revenue, count(*) as n from `{schema}`.`stg_orders` o left join __dbt__cte__known k "
        "on o.customer = k.id group by 1, 2"
    )
    manifest = compiled(
        tmp_path,
        model("stg_orders", staged, "view", schema),
        model("by_customer", by_customer, "incremental", schema),
        model(
            "by_country",
            f"select country, max(revenue) m from `{schema}`.by_customer group by country",
            "table",
            schema,
        ),
        model("learned", "pandas", "table", schema, language="python"),
        model("guesses", f"select * from `{schema}`.learned", "table", schema),
    )
    oracle = by_customer.replace(f"`{schema}`.`stg_orders`", f"({staged})")
    try:
        for changed in (False, True):
            if changed:
                values = "(20, 1, 500, 'paid'), (21, 7, 1, 'open'), (22, 8, 2, 'paid')"
                sql(f"insert into delta.`{raw / 'orders'}` values {values}")
                sql(f"delete from delta.`{raw / 'orders'}` where id in (1, 4)")
                write("customers", "select * from values (0, 'it'), (1, 'fr'), (8, 'de') t(id, country)")
            opened = OpenProject(load_project(manifest, str(tmp_path / "lake")), spark)
            opened.open_possible()
            report = run_project(opened, Selection(), None)
            assert {each.name.split("`")[3]: each.outcome for each in report.datasets} == {
                "by_customer": "refreshed",
                "by_country": "refreshed",
                "learned": "failed",
                "guesses": "skipped",
            }, [each.sentence for each in report.datasets]
            batch = oracle
            for name in ("orders", "customers"):
                batch = batch.replace(f"raw.{name}", f"delta.`{raw / name}`")
            expected = sql(batch)
            expected.createOrReplaceTempView(f"{schema}_oracle")
            above = sql(f"select country, max(revenue) m from {schema}_oracle group by country")
            assert not difference(spark.table(f"{schema}.by_customer").collect(), expected.collect())
            assert not difference(spark.table(f"{schema}.by_country").collect(), above.collect())
    finally:
        sql(f"drop database if exists {schema} cascade")


def test_a_model_that_changed_after_it_was_compiled_is_a_warning(tmp_path: Path) -> None:
    """Protects from answers of a query that nobody sees any more in the project."""
    text = "select 1 a\n"
    checksum = {"name": "sha256", "checksum": sha256(text.strip().encode()).hexdigest()}
    of_package = model("theirs", "select 1 a", "table", checksum=checksum, fqn=["other", "theirs"])
    manifest = compiled(
        tmp_path, of_package, *(model(name, "select 1 a", "table", checksum=checksum) for name in ("one", "two"))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeltafoldWarning)
        load_project(manifest)  # the manifest alone
        project = manifest.parent.parent
        (project / "dbt_project.yml").write_text("name: shop\n")
        (project / "models").mkdir()
        for name in ("one", "two"):
            (project / "models" / f"{name}.sql").write_text(text)
        load_project(manifest)
    (project / "models" / "one.sql").write_text("select 2 a\n")
    (project / "models" / "two.sql").unlink()
    (project / "models" / "more").mkdir()
    (project / "models" / "more" / "three.sql").write_text("select 3 a")
    changed = r"models/more/three\.sql, models/one\.sql, models/two\.sql changed since dbt wrote it, .* Run dbt comp"
    with pytest.warns(DeltafoldWarning, match=changed):
        load_project(manifest)


def test_a_macro_and_a_test_that_changed_are_a_warning(tmp_path: Path) -> None:
    manifest = compiled(tmp_path)
    content, macros = (
        json.loads(manifest.read_text()),
        ("{% macro a() %}1{% endmacro %}", "{% macro b() %}2{% endmacro %}"),
    )
    content["macros"] = {
        f"macro.shop.{number}": {"package_name": "shop", "original_file_path": "macros/all.sql", "macro_sql": text}
        for number, text in enumerate(macros)
    }
    content["nodes"]["test.shop.own"] = {
        "unique_id": "test.shop.own", "resource_type": "test", "name": "own", "fqn": ["shop", "own"],
        "original_file_path": "tests/own.sql",
        "checksum": {"name": "sha256", "checksum": sha256(b"select 1").hexdigest()},
    }  # fmt: skip
    content["disabled"] = {"model.shop.off": [{"original_file_path": "models/off.sql"}]}
    manifest.write_text(json.dumps(content))
    project = manifest.parent.parent
    files = {"dbt_project.yml": "name: shop\n", "macros/all.sql": "\n".join(macros), "tests/own.sql": "select 1\n",
             "models/off.sql": "select 1"}  # fmt: skip
    for name, text in files.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeltafoldWarning)
        load_project(manifest)
    for name, text in (("macros/all.sql", macros[0] + "{% macro b() %}3{% endmacro %}"), ("tests/own.sql", "select 2")):
        (project / name).write_text(text)
        with pytest.warns(DeltafoldWarning, match=f"{name} changed since dbt wrote it"):
            load_project(manifest)
        (project / name).write_text(files[name])
