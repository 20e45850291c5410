"""The dbt project of the tests: source tables, dbt itself, and what of its output is kept in the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from deltafold.spark.jvm.java import provide_java

PROJECT = Path(__file__).parent / "shop"
COMPILED = PROJECT / "compiled" / "manifest.json"
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "shop"
ENVIRONMENT = Path(__file__).parents[2] / ".cache" / "dbt"
# what Deltafold reads of a node
KEPT = (
    "unique_id", "resource_type", "name", "fqn", "language", "relation_name", "compiled_code", "original_file_path",
    "description", "tags", "package_name", "source_name",
)  # fmt: skip

CONFIG = ("materialized", "meta", "pre-hook", "post-hook")

SOURCES = {
    "customers": "id, concat(' Name ', id) name, element_at(array('no', 'it', 'dk'), cast(id % 3 + 1 as int)) country, "
    "timestamp'2024-01-01' + make_interval(0, 0, 0, cast(id as int)) created_at from range(1, 13)",
    "orders": "id, 1 + id % 11 customer, 1 + id % 3 store, 1 + id % 5 employee, "
    "element_at(array('paid', 'open', 'paid', 'cancelled'), cast(id % 4 + 1 as int)) status, "
    "timestamp'2023-12-30' + make_interval(0, 0, 0, cast(id % 70 as int), cast(id % 24 as int)) ordered_at "
    "from range(1, 61)",
    "items": "id, 1 + id % 60 order_id, 1 + id * 7 % 8 product, cast(1 + id % 4 as int) quantity from range(1, 151)",
    "products": "id, concat('p', id) name, if(id % 2 = 0, 'drink', 'food') kind, id * 125 price from range(1, 9)",
    "supplies": "id, 1 + id % 8 product, 1 + id % 4 supplier, id * 20 cost, id % 3 = 0 perishable from range(1, 25)",
    "stores": "id, concat('s', id) name, if(id = 1, 'NO', 'IT') country, cast(0.02 * id as decimal(6,4)) tax_rate "
    "from range(1, 5)",
    "payments": "id, 1 + id * 3 % 60 order_id, element_at(array('CARD', 'cash', 'voucher'), cast(id % 3 + 1 as int)) "
    "method, id * 90 cents, if(id % 9 = 0, 'failed', 'success') status from range(1, 81)",
    "refunds": "id, id * 6 payment_id, id * 10 cents from range(1, 8)",
    "web_events": "id, concat('v', id % 9) visitor, if(id % 4 = 0, null, 1 + id % 9) customer, "
    "element_at(array('home', 'cart', 'shop'), cast(id % 3 + 1 as int)) page, "
    "timestamp'2024-01-05' + make_interval(0, 0, 0, cast(id % 6 as int), 0, cast(id * 13 % 60 as int)) at "
    "from range(1, 101)",
    "employees": "id, concat('e', id) name, if(id = 1, null, cast(ceil(id / 3) as bigint)) manager, 1 + id % 3 store "
    "from range(1, 7)",
    "suppliers": "id, concat('u', id) name, 'NO' country from range(1, 5)",
    "shipments": "id order_id, if(id % 2 = 0, 'fast', 'slow') carrier, "
    "timestamp'2024-01-02' + make_interval(0, 0, 0, cast(id % 70 as int)) shipped_at, "
    "timestamp'2024-01-04' + make_interval(0, 0, 0, cast(id % 70 + id % 3 as int)) delivered_at from range(1, 50)",
}
OTHERS = {  # what dbt seed and dbt snapshot write
    "shop_seeds.regions": "* from values ('NO', 'north'), ('SE', 'north'), ('IT', 'south') t(country, region)",
    "shop_seeds.segments": "* from values ('new', 0, 1), ('regular', 2, 4), ('loyal', 5, 1000) "
    "t(segment, from_orders, to_orders)",
    "shop_snapshots.product_prices": "id, id * 125 price from range(1, 9)",
}
CHANGES = [
    (
        "insert into shop_raw.orders select id, 2, 4, 1, 'paid', timestamp'2024-01-20 10:00:00' from range(61, 64)",
        "insert into shop_raw.items select id, 61 + id % 3, 2, 5 from range(151, 157)",
        "update shop_raw.payments set status = 'success' where id = 9",
        "insert into shop_raw.web_events values (101, 'v1', 2, 'cart', timestamp'2024-01-20 10:00:00')",
    ),
    (
        "delete from shop_raw.orders where id in (5, 6)",
        "update shop_raw.products set price = price + 15 where id < 4",
        "insert into shop_snapshots.product_prices values (1, 140)",
        "merge into shop_raw.customers c using (select 3 id) n on c.id = n.id "
        "when matched then update set country = 'se'",
        "delete from shop_raw.web_events where id % 10 = 3",
    ),
    (
        "insert overwrite shop_seeds.regions values ('NO', 'nord'), ('IT', 'sud'), ('DK', 'nord')",
        "update shop_raw.orders set status = 'cancelled' where id = 8",
        "insert into shop_raw.refunds values (8, 9, 55)",
        "delete from shop_raw.supplies where supplier = 4",
    ),
]


LIST = """
import json, sys
from dbt.cli.main import dbtRunner
manifest = dbtRunner().invoke(["parse", "--quiet"]).result
def ids(text):
    done = dbtRunner(manifest=manifest).invoke(["ls", "--quiet", "--resource-type", "model", "--output", "json",
        "--output-keys", "unique_id", "--select", *text.split()])
    return [json.loads(line)["unique_id"] for line in done.result]
print(json.dumps({text: ids(text) for text in sys.argv[1:]}))
"""


def sql(spark: SparkSession, *statements: str) -> None:
    for statement in statements:
        cast(Any, spark).sql(statement)


def create_tables(spark: SparkSession, folder: Path) -> None:
    """Create the sources, the seeds and the snapshot of the project."""
    tables = {f"shop_raw.{name}": query for name, query in SOURCES.items()} | OTHERS
    for database in sorted({name.partition(".")[0] for name in tables}):
        sql(spark, f"create database {database} location '{folder / database}'")
    for name, query in tables.items():
        sql(spark, f"create table {name} using delta as select {query}")


def drop_tables(spark: SparkSession) -> None:
    for database in spark.catalog.listDatabases("*shop_*"):
        sql(spark, f"drop database `{database.name}` cascade")


def install() -> Path:
    """Return dbt in an environment of its own; skips the test where it cannot be installed."""
    uv, command = Path(sys.executable).with_name("uv"), ENVIRONMENT / "bin" / "dbt"
    requirements = ["--python", str(ENVIRONMENT), "-r", str(PROJECT / "requirements.txt")]
    try:
        if not command.exists():
            subprocess.run([uv, "venv", "--quiet", "--clear", ENVIRONMENT], check=True, capture_output=True, text=True)
        subprocess.run([uv, "pip", "install", "--quiet", *requirements], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"dbt cannot be installed into {ENVIRONMENT}: {getattr(error, 'stderr', None) or error}")
    return command


class Dbt:
    """A copy of a project, and the dbt that runs it with the Spark of the tests."""

    def __init__(self, folder: Path, project: Path = PROJECT) -> None:
        self.command, self.project = install(), folder / "shop"
        shutil.copytree(project, self.project, ignore=shutil.ignore_patterns("compiled", "target"))
        packages = folder / "packages"  # pyspark alone: dbt needs other releases of the rest
        packages.mkdir()
        for package in ("pyspark", "py4j"):
            (packages / package).symlink_to(Path(cast(str, sys.modules[package].__file__)).parent)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(packages),
            "JAVA_HOME": str(provide_java().home),
            "DBT_PROFILES_DIR": str(self.project),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        }

    def compile(self) -> None:
        self.call([str(self.command), "compile", "--full-refresh"])

    def call(self, command: Sequence[str]) -> str:
        """Run a command in the project, and return what it prints."""
        done = subprocess.run(command, cwd=self.project, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def list_models(self, selections: Sequence[str]) -> dict[str, set[str]]:
        """Return the ids of the models that dbt selects, by selection; in one process, since dbt starts slowly."""
        shown = self.call([str(self.command.with_name("python")), "-c", LIST, *selections]).splitlines()[-1]
        return {text: set(ids) for text, ids in json.loads(shown).items()}

    @property
    def manifest(self) -> Path:
        return self.project / "target" / "manifest.json"


def reduce_manifest(manifest: Path) -> dict[str, Any]:
    """Return what Deltafold reads of a manifest, so that it can be kept, without anything of the machine."""
    content = json.loads(manifest.read_text())

    def reduce(node: dict[str, Any]) -> dict[str, Any]:
        config = node.get("config", {})
        kept = {key: node[key] for key in KEPT if node.get(key)}
        kept["config"] = {
            key: config[key] for key in ("materialized", "meta", "pre-hook", "post-hook") if config.get(key)
        }
        if nodes := node.get("depends_on", {}).get("nodes"):
            kept["depends_on"] = {"nodes": nodes}
        return kept

    return {
        "metadata": {"project_name": content["metadata"]["project_name"]},
        "nodes": {id: reduce(node) for id, node in sorted(content["nodes"].items())},
        "sources": {id: reduce(node) for id, node in sorted(content["sources"].items())},
    }
