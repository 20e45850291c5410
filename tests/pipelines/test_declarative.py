"""Projects of Spark Declarative Pipelines, unmodified: each table equals Spark's batch after every change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold.pipelines.declarative import load_project
from deltafold.pipelines.project_run import OpenProject, Outcome, ProjectRefusedError, Selection, run_project
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


@dp.materialized_view(comment="Revenue by customer", table_properties={"owner": "sales"})
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
WITH c AS (SELECT * FROM {db}.customers)
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
    assert "owner=sales" in details["Table Properties"]
