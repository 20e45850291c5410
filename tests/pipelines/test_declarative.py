"""Projects of Spark Declarative Pipelines, unmodified: each table equals Spark's batch after every change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold.pipelines.declarative import load_project
from deltafold.pipelines.project_run import OpenProject, Outcome, ProjectRefusedError, Selection, run_project
from tests.cli.calling import call
from tests.properties.comparing import difference

SPEC = """
name: shop
storage: file://{folder}/storage
database: {database}
libraries:
  - glob:
      include: transformations/**
"""


@dataclass
class Shop:
    """A project with source tables in a database of its own; oracles: what Spark gives for each dataset."""

    spark: SparkSession
    folder: Path
    database: str
    oracles: dict[str, str] = field(default_factory=dict[str, str])

    def write(self, name: str, text: str) -> None:
        path = self.folder / "transformations" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def sql(self, *statements: str) -> None:
        for statement in statements:
            cast(Any, self.spark).sql(statement.format(db=self.database))

    def load(self) -> OpenProject:
        spec = self.folder / "spark-pipeline.yml"
        spec.write_text(SPEC.format(folder=self.folder, database=self.database))
        return OpenProject(load_project(spec, self.spark), self.spark)

    def run(self, **selected: Any) -> dict[str, Outcome]:
        opened = self.load()
        opened.open()
        return {outcome.dataset: outcome for outcome in run_project(opened, Selection(**selected), lambda step: None)}

    def refresh(self) -> dict[str, Outcome]:
        """Refresh everything, and compare it with Spark's batch."""
        outcomes = self.run()
        assert not {name: outcome.sentence for name, outcome in outcomes.items() if outcome.state != "refreshed"}
        self.check()
        return outcomes

    def refusals(self) -> list[str]:
        with pytest.raises(ProjectRefusedError) as refused:
            self.load().open()
        return str(refused.value).splitlines()

    def table(self, name: str) -> DataFrame:
        return self.spark.table(f"{self.database}.{name}")

    def check(self) -> None:
        for name, query in self.oracles.items():
            expected = cast(Any, self.spark).sql(query.format(db=self.database))
            assert self.table(name).columns == expected.columns, name
            assert not difference(self.table(name).collect(), expected.collect()), name


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    database = f"sdp_{uuid4().hex[:8]}"
    cast(Any, spark).sql(f"CREATE DATABASE {database} LOCATION '{tmp_path / 'tables'}'")
    yield Shop(spark, tmp_path, database)
    cast(Any, spark).sql(f"DROP DATABASE {database} CASCADE")


PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

session = SparkSession.active()


@dp.temporary_view
def paid():
    return spark.table("orders").where("status = 'paid'")


@dp.materialized_view(comment="Revenue by customer", table_properties={"team": "sales"})
def by_customer():
    return session.read.table("paid").groupBy("customer").agg(F.sum("amount").alias("revenue"))


for country in ["de", "fr"]:

    @dp.materialized_view(name=f"revenue_{country}")
    def revenue(country=country):
        return spark.sql("SELECT sum(b.revenue) AS revenue FROM by_customer b JOIN customers USING (customer) "
                         f"WHERE country = '{country}'")
"""
SQL = """-- how many customers are in each segment; no statement ends here
CREATE MATERIALIZED VIEW segments COMMENT 'how many; by size' AS
SELECT CASE WHEN revenue > 100 THEN 'big; rich' ELSE 'small' END AS segment, count(*) AS n FROM by_customer GROUP BY 1;

CREATE TEMPORARY VIEW large (customer, revenue) AS SELECT * FROM by_customer WHERE revenue > 100;

CREATE MATERIALIZED VIEW {db}.large_customers AS
WITH customers AS (SELECT 'none' AS country), c AS (SELECT * FROM {db}.customers)
SELECT large.customer, revenue, country FROM large JOIN c ON c.customer = large.customer;
"""
ORACLES = {
    "by_customer": "SELECT customer, sum(amount) revenue FROM {db}.orders WHERE status = 'paid' GROUP BY customer",
    "segments": "SELECT CASE WHEN revenue > 100 THEN 'big; rich' ELSE 'small' END AS segment, count(*) AS n "
    "FROM (SELECT sum(amount) revenue FROM {db}.orders WHERE status = 'paid' GROUP BY customer) GROUP BY 1",
    "large_customers": "SELECT customer, sum(amount) revenue, country FROM {db}.orders JOIN {db}.customers USING "
    "(customer) WHERE status = 'paid' GROUP BY customer, country HAVING sum(amount) > 100",
    "revenue_de": "SELECT sum(amount) revenue FROM {db}.orders JOIN {db}.customers USING (customer) "
    "WHERE status = 'paid' AND country = 'de'",
    "revenue_fr": "SELECT sum(amount) revenue FROM {db}.orders JOIN {db}.customers USING (customer) "
    "WHERE status = 'paid' AND country = 'fr'",
}


@pytest.fixture
def mixed(shop: Shop) -> Shop:
    """Views in Python and SQL that read each other, over two tables."""
    shop.sql(
        "CREATE TABLE {db}.orders (customer INT, status STRING, amount INT) USING delta",
        "CREATE TABLE {db}.customers (customer INT, country STRING) USING delta",
        "INSERT INTO {db}.orders VALUES (1, 'paid', 50), (1, 'paid', 70), (2, 'paid', 20), (3, 'open', 500)",
        "INSERT INTO {db}.customers VALUES (1, 'de'), (2, 'fr'), (3, 'de')",
    )
    shop.write("a.py", PYTHON)
    shop.write("b.sql", SQL.format(db=shop.database))
    shop.oracles = dict(ORACLES)
    return shop


def test_python_and_sql_mixed_equal_spark_after_every_change(mixed: Shop) -> None:
    mixed.refresh()
    mixed.sql(
        "INSERT INTO {db}.orders VALUES (2, 'paid', 200), (NULL, 'paid', 1)",
        "UPDATE {db}.orders SET status = 'paid' WHERE customer = 3",
    )
    outcomes = mixed.refresh()
    assert {outcome.report.verdict for outcome in outcomes.values() if outcome.report} <= {"applied", "recomputed"}
    mixed.sql("DELETE FROM {db}.orders WHERE customer = 1", "UPDATE {db}.customers SET country = 'fr'")
    mixed.refresh()
    details = {
        row["col_name"]: row["data_type"]
        for row in mixed.spark.sql(f"DESCRIBE TABLE EXTENDED {mixed.database}.by_customer").collect()
    }
    assert details["Comment"] == "Revenue by customer"
    assert "team=sales" in details["Table Properties"]


STREAMS = """
from pyspark import pipelines as dp

dp.create_streaming_table("events", comment="all events", partition_cols=["kind"])


@dp.append_flow(target="events")
def from_web():
    return spark.readStream.table("web")
"""
FLOWS = """
CREATE STREAMING TABLE clicks AS SELECT w.id FROM STREAM web AS w WHERE kind = 'click';
CREATE FLOW from_app AS INSERT INTO events BY NAME SELECT kind, id + 100 AS id FROM STREAM(app);
CREATE MATERIALIZED VIEW kinds AS SELECT kind, count(*) AS n FROM events GROUP BY kind;
"""


def test_streaming_tables_take_each_row_once(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE {db}.web (id INT, kind STRING) USING delta",
        "CREATE TABLE {db}.app (id INT, kind STRING) USING delta",
        "INSERT INTO {db}.web VALUES (1, 'click'), (2, 'view')",
    )
    shop.write("streams.py", STREAMS)
    shop.write("flows.sql", FLOWS)
    events = "SELECT kind, id FROM {db}.web UNION ALL SELECT kind, id + 100 FROM {db}.app"  # as the first flow has it
    shop.oracles = {
        "events": events,
        "clicks": "SELECT id FROM {db}.web WHERE kind = 'click'",
        "kinds": f"SELECT kind, count(*) n FROM ({events}) GROUP BY kind",
    }
    shop.refresh()
    assert shop.refresh()["events"].rows == 0
    shop.sql("INSERT INTO {db}.web VALUES (3, 'click')", "INSERT INTO {db}.app VALUES (1, 'click'), (1, 'click')")
    assert shop.refresh()["events"].rows == 3
    assert shop.run(full_refresh=("events",)).keys() == {"events"}  # as Spark: what is named, and nothing else
    assert shop.run(refresh=("kinds",))["kinds"].state == "refreshed"
    shop.check()
    described = shop.spark.sql(f"DESCRIBE DETAIL {shop.database}.events").first()
    assert described is not None and described["partitionColumns"] == ["kind"]


CDC = """
from pyspark import pipelines as dp
from pyspark.sql.functions import col, expr

dp.create_streaming_table("people")
dp.create_auto_cdc_flow(
    target="people", source="changes", keys=["id"], sequence_by="seq", apply_as_deletes="op = 'D'",
    except_column_list=["op", "seq"],
)
dp.create_streaming_table("names")
dp.create_auto_cdc_flow(
    target="names", source="changes", keys=[col("id")], sequence_by=col("seq"), apply_as_deletes=expr("op = 'D'"),
    column_list=["name", "id"],
)
"""


def test_auto_cdc_keeps_the_latest_row_of_each_key(shop: Shop) -> None:
    """Protects from late, repeated and deleted events."""
    shop.sql(
        "CREATE TABLE {db}.changes (id INT, name STRING, op STRING, seq BIGINT) USING delta",
        "INSERT INTO {db}.changes VALUES (1, 'Ann', 'I', 1), (2, 'Bob', 'I', 2), (2, 'Bob', 'D', 5)",
    )
    shop.write("cdc.py", CDC)
    latest = (
        "SELECT id, name FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS place "
        "FROM {db}.changes) WHERE place = 1 AND NOT (op <=> 'D')"
    )
    shop.oracles = {"people": latest, "names": latest}
    shop.refresh()
    assert shop.table("people").collect() == [(1, "Ann")]
    shop.sql("INSERT INTO {db}.changes VALUES (2, 'late', 'U', 4), (1, 'Anne', NULL, 7), (1, 'Ann', 'I', 1)")
    shop.refresh()
    assert shop.table("people").collect() == [(1, "Anne")]
    shop.sql("INSERT INTO {db}.changes VALUES (2, 'Bob', 'I', 9), (1, 'Anne', 'D', 8), (3, NULL, 'I', 1)")
    shop.refresh()
    assert shop.table("people").count() == 2


REFUSED = """
from pyspark import pipelines as dp

dp.create_sink("out", "kafka", {})


@dp.materialized_view(format="parquet")
def parquet():
    return spark.range(3)


@dp.materialized_view(table_properties={"deltafold.refresh_policy": "sometimes"})
def sometimes():
    return spark.range(3)


@dp.materialized_view
def failing():
    return spark.range(3).withColumn("x", 1)


@dp.table
def batch():
    return spark.table("orders")
"""
REFUSED_SQL = """SET spark.sql.ansi.enabled = false;
CREATE MATERIALIZED VIEW nowhere AS
  SELECT * FROM not_there;
CREATE MATERIALIZED VIEW declared (a STRING) AS SELECT 1 AS a;
CREATE MATERIALIZED VIEW one AS SELECT * FROM two; CREATE MATERIALIZED VIEW two AS SELECT * FROM one;
SELEC 1;
"""


def test_all_that_is_refused_is_refused_at_once(mixed: Shop) -> None:
    mixed.write("c.py", REFUSED)
    mixed.write("d.sql", REFUSED_SQL)
    refusals = "\n".join(mixed.refusals())
    for reason in (
        "transformations/c.py, line 4: out: sinks are not supported",
        "transformations/c.py, line 7: parquet: format parquet is not supported",
        "transformations/c.py, line 12: sometimes: unknown deltafold.refresh_policy 'sometimes'",
        "transformations/c.py, line 17: failing: ",
        "transformations/c.py, line 22: batch: query: it reads no stream",
        "transformations/d.sql, line 1: SetCommand: this statement declares nothing",
        "transformations/d.sql, line 2: nowhere: ",
        "transformations/d.sql, line 4: declared: query: it declares the columns (a string)",
        "the datasets read each other in a cycle (one → two → one)",
        "transformations/d.sql, line 6: Spark cannot parse the statement",
    ):
        assert reason in refusals
    assert not mixed.spark.catalog.tableExists(f"{mixed.database}.by_customer")


def test_what_cannot_be_maintained_is_refused_under_a_strict_policy(mixed: Shop) -> None:
    by_map = "AS SELECT count(*) AS n FROM orders GROUP BY map('status', status)"
    strict = "TBLPROPERTIES ('deltafold.refresh_policy' = 'incremental_strict')"
    mixed.write("e.sql", f"CREATE MATERIALIZED VIEW sizes {strict} {by_map};")
    assert mixed.refusals()[0].startswith("transformations/e.sql, line 1: sizes: ")
    mixed.write("e.sql", f"CREATE MATERIALIZED VIEW sizes {strict.replace('_strict', '')} {by_map};")
    mixed.oracles = {"sizes": "SELECT count(*) AS n FROM {db}.orders GROUP BY status"}
    assert mixed.refresh()["sizes"].state == "refreshed"


def test_the_commands_run_a_project(mixed: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a dataset that fails and stops others, and from an exit code of 0 then."""
    mixed.load()
    monkeypatch.chdir(mixed.folder / "transformations")
    done = call("dry-run")
    assert done.exit_code == 0, done.output
    assert "segments: reads by_customer" in done.stdout
    assert not mixed.spark.catalog.tableExists(f"{mixed.database}.by_customer")
    done = call("run", "--refresh", "revenue_de, segments", "--json")
    assert [outcome["dataset"] for outcome in json.loads(done.stdout)] == ["revenue_de", "segments"], done.output
    mixed.write("f.sql", "CREATE MATERIALIZED VIEW broken AS SELECT CAST(status AS INT) AS number FROM orders;"
                "CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM broken;")  # fmt: skip
    done = call("run", "--spec", str(mixed.folder / "spark-pipeline.yml"))
    assert done.exit_code not in (0, 70), done.output
    assert "above: not refreshed: broken failed" in done.stdout
    assert "5 refreshed, 1 failed, 1 skipped" in done.stdout
    mixed.check()
    assert call("run", "--refresh", "nothing").exit_code == 2
    assert call("run", "--full-refresh-all", "--refresh", "segments").exit_code == 2
