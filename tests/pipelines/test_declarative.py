"""Projects of Spark Declarative Pipelines, unmodified: each table equals Spark's batch after every change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.errors import DeltafoldWarning
from deltafold.algebra.results.pipeline_report import PipelineReport
from deltafold.cli.rendering import show_datasets
from deltafold.lake.records import records_at
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.declarative import load_project
from deltafold.pipelines.graph import Graph
from deltafold.pipelines.open_project import OpenProject, ProjectRefusedError
from deltafold.pipelines.project_run import run_project
from deltafold.pipelines.project_selection import Selection
from tests.cli.calling import call
from tests.crash.points import Killed
from tests.night import night
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

    def run(self, **selected: Any) -> PipelineReport:
        opened = self.load()
        opened.open()
        return run_project(opened, Selection(**selected), None)

    def refresh(self) -> PipelineReport:
        """Refresh everything, and compare it with Spark's batch."""
        report = self.run()
        assert report.ok, [dataset.sentence for dataset in report.datasets]
        self.check()
        return report

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


@dp.materialized_view(
    comment="Revenue by customer",
    table_properties={"team": "sales", "delta.appendOnly": "true"},
    cluster_by=["customer"],
)
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
    with pytest.warns(DeltafoldWarning, match="by_customer: clustering, delta.appendOnly not applied"):
        mixed.refresh()
    mixed.sql(
        "INSERT INTO {db}.orders VALUES (2, 'paid', 200), (NULL, 'paid', 1)",
        "UPDATE {db}.orders SET status = 'paid' WHERE customer = 3",
        "DELETE FROM {db}.orders WHERE customer = 1",
        "UPDATE {db}.customers SET country = 'fr'",
    )
    report = mixed.refresh()
    assert {dataset.report.verdict for dataset in report.datasets if dataset.report} <= {"applied", "recomputed"}
    assert len(report.versions) == 2
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
    apps = f"CREATE STREAMING TABLE apps AS SELECT id FROM STREAM delta.`{shop.folder}/tables/app`;"
    shop.write("flows.sql", FLOWS + apps)
    events = "SELECT kind, id FROM {db}.web UNION ALL SELECT kind, id + 100 FROM {db}.app"  # as the first flow has it
    shop.oracles = {
        "events": events,
        "clicks": "SELECT id FROM {db}.web WHERE kind = 'click'",
        "apps": f"SELECT id FROM delta.`{shop.folder}/tables/app`",
        "kinds": f"SELECT kind, count(*) n FROM ({events}) GROUP BY kind",
    }
    shop.refresh()
    shop.sql("INSERT INTO {db}.web VALUES (3, 'click')", "INSERT INTO {db}.app VALUES (1, 'click'), (1, 'click')")
    shop.sql("DROP TABLE {db}.events", "DROP TABLE {db}.clicks")  # as a catalog in memory ends with its process
    assert shop.refresh()["events"].rows == 3
    assert shop.run(refresh=("clicks",))["clicks"].rows == 0
    report = shop.run(full_refresh=("events",))
    assert [dataset.name for dataset in report.datasets] == ["events"]  # what is named, and nothing that reads it
    assert shop.run(refresh=("kinds",))["kinds"].outcome == "nothing to do"  # the same rows were written again
    shop.check()
    shop.write("later.sql", "CREATE STREAMING TABLE later AS SELECT id FROM STREAM clicks;")
    with pytest.raises(DeclarationError, match=r"clicks: later streams it.* --full-refresh clicks,later"):
        shop.run(full_refresh=("clicks",))
    described = shop.spark.sql(f"DESCRIBE DETAIL {shop.database}.events").first()
    assert described is not None and described["partitionColumns"] == ["kind"]
    other = replace(shop.load().project, storage=f"{shop.folder}/other")  # in the same session, with the same names
    with pytest.raises(ProjectRefusedError, match="events`: it exists, and this project did not create it"):
        OpenProject(other, shop.spark).open()
    shop.sql("DROP TABLE {db}.events", "DROP TABLE {db}.clicks", "DROP TABLE {db}.apps", "DROP TABLE {db}.later")
    shutil.copytree(shop.load().root, f"{shop.folder}/moved")
    moved = OpenProject(replace(other, storage=f"{shop.folder}/moved"), shop.spark)
    moved.open()
    assert run_project(moved, Selection(refresh=("events", "apps")), None).counts == {"nothing to do": 2}
    assert moved.answer("apps").count() == 2


@night
def test_what_reads_a_failed_streaming_table_is_skipped(shop: Shop) -> None:
    """And only that: the next run finishes what is missing, and takes no row twice."""
    shop.sql(
        "CREATE TABLE {db}.web (id INT, kind STRING) USING delta", "INSERT INTO {db}.web VALUES (1, 'a'), (0, 'b')"
    )
    flows = (
        "CREATE STREAMING TABLE shares AS SELECT kind, {share} AS share FROM STREAM web;"
        "CREATE STREAMING TABLE copies AS SELECT share FROM STREAM shares;"
        "CREATE MATERIALIZED VIEW total AS SELECT sum(share) AS total FROM copies;"
        "CREATE MATERIALIZED VIEW kinds AS SELECT count(DISTINCT kind) AS n FROM web;"
    )
    shop.write("flows.sql", flows.format(share="10 / id"))
    report = shop.run()
    assert {dataset.name: dataset.outcome for dataset in report.datasets} == {
        "shares": "failed", "copies": "skipped", "total": "skipped", "kinds": "refreshed",
    }  # fmt: skip
    assert report["total"].because == ("shares",)
    assert report["shares"].error.startswith("shares: its stream stopped: Division by zero. ")
    shop.write("flows.sql", flows.format(share="try_divide(10, id)"))
    shop.oracles = {
        "shares": "SELECT kind, try_divide(10, id) AS share FROM {db}.web",
        "copies": "SELECT try_divide(10, id) AS share FROM {db}.web",
        "total": "SELECT sum(try_divide(10, id)) AS total FROM {db}.web",
        "kinds": "SELECT count(DISTINCT kind) AS n FROM {db}.web",
    }
    shop.refresh()


@night
@pytest.mark.parametrize("change", ["DELETE FROM {db}.web WHERE id = 1", "UPDATE {db}.web SET kind = 'c' WHERE id = 1"])
def test_a_stream_whose_source_changed_rows(shop: Shop, change: str) -> None:
    """It says what heals it, which correcting the data does not."""
    shop.sql(
        "CREATE TABLE {db}.web (id INT, kind STRING) USING delta", "INSERT INTO {db}.web VALUES (1, 'a'), (0, 'b')"
    )
    shop.write("flows.sql", "CREATE STREAMING TABLE copies AS SELECT id, kind FROM STREAM web;")
    shop.run()
    shop.sql(change)
    assert shop.run()["copies"].error.endswith("begin again with what it has now: --full-refresh copies.")
    shop.oracles = {"copies": "SELECT id, kind FROM {db}.web"}
    shop.run(full_refresh=("copies",))
    shop.check()
    shop.sql("CREATE OR REPLACE TABLE {db}.web (id INT, kind STRING) USING delta")
    error = shop.run()["copies"].error
    assert "was replaced by another one" in error and error.endswith("--full-refresh copies.")
    shop.run(full_refresh=("copies",))
    shop.check()


CRASHING = """
from pyspark import pipelines as dp
from pyspark.sql.functions import expr


@dp.table
def shares():
    return spark.readStream.option("maxFilesPerTrigger", 1).table("web").select("id", expr("{share}").alias("share"))
"""


def test_a_crash_of_a_streaming_table_loses_and_repeats_no_row(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between batches, between the commit of a batch and its mark, and after the table was emptied."""
    shop.sql("CREATE TABLE {db}.web (id INT) USING delta")
    for number in (1, 0, 5):
        shop.sql(f"INSERT INTO {{db}}.web VALUES ({number}), ({number + 10})")
    shop.oracles = {"shares": "SELECT id, try_divide(100, id) AS share FROM {db}.web"}
    shop.write("a.py", CRASHING.format(share="100 / id"))
    assert shop.run()["shares"].outcome == "failed"
    assert 0 < shop.table("shares").count() < 6
    checkpoint = next((tmp_path / "storage").glob("checkpoints/*/1/shares"))
    for log in ("offsets", "commits"):
        max((checkpoint / log).glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
    shop.write("a.py", CRASHING.format(share="try_divide(100, id)"))
    shop.refresh()

    opened = shop.load()
    opened.open()
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Graph, "evaluate", _crash)
        opened.tables.append(opened.project.streaming_tables[0], full=True)
    assert shop.table("shares").count() == 0
    shop.refresh()
    shop.sql("INSERT INTO {db}.web VALUES (7)")
    assert shop.refresh()["shares"].rows == 1

    opened = shop.load()
    opened.open()
    opened.warehouse.tuning = replace(opened.warehouse.tuning, lock_seconds=0)
    key = opened.graph.key(opened.project.streaming_tables[0])
    with records_at(Path(opened.tables.checkpoints(key))).lock("table shares", "refreshed", 1):  # by another run
        assert run_project(opened, Selection(), None)["shares"].error_type == "BusyError"


FILES = """
from pyspark import pipelines as dp
from pyspark.sql import functions as F


@dp.materialized_view(partition_cols=["zone"], comment="of the shop")
def prices():
    return spark.read.json("{folder}/prices").select({columns})


@dp.materialized_view
def dear():
    return spark.table("prices").where("price > 3").join(spark.table("zones"), "zone").select("zone", "price", "name")
"""


STRICT = """
from pyspark import pipelines as dp


@dp.materialized_view(table_properties={{"deltafold.refresh_policy": "incremental_strict"}})
def strict():
    return spark.read.json("{folder}")
"""


def test_what_reads_files_is_replaced_and_its_readers_are_maintained(shop: Shop, tmp_path: Path) -> None:
    shop.sql(
        "CREATE TABLE {db}.zones (zone STRING, name STRING) USING delta", "INSERT INTO {db}.zones VALUES ('a', 'north')"
    )
    prices = tmp_path / "prices" / "all.json"
    prices.parent.mkdir()
    shop.oracles = {
        "prices": f"SELECT zone, price, 1 AS one FROM json.`{prices.parent}`",
        "dear": f"SELECT zone, price, name FROM json.`{prices.parent}` JOIN {{db}}.zones USING (zone) WHERE price > 3",
    }
    shop.write("files.py", FILES.format(folder=tmp_path, columns="'zone', 'price', F.lit(1).alias('one')"))
    for rows in (("a", 5), ("b", 9)), (("a", 6), ("b", 9)), (("b", 9), ("a", 6)):
        prices.write_text("\n".join(f'{{"zone": "{zone}", "price": {price}}}' for zone, price in rows))
        report = shop.refresh()
    assert report["dear"].outcome == "nothing to do"
    described = shop.spark.sql(f"DESCRIBE DETAIL {shop.database}.prices").first()
    assert described is not None and described["partitionColumns"] == ["zone"]
    shop.write(
        "files.py", FILES.format(folder=tmp_path, columns="'zone', 'price', (F.col('price') * 2).alias('twice')")
    )
    shop.oracles["prices"] = f"SELECT zone, price, price * 2 AS twice FROM json.`{prices.parent}`"
    shop.refresh()
    shop.write("strict.py", STRICT.format(folder=prices.parent))
    [refusal] = shop.refusals()
    assert "strict: policy incremental_strict: the query reads data without versions" in refusal


def _crash(*_: object) -> None:
    raise Killed


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
    target="names", source="streamed", keys=[col("id")], sequence_by=col("seq"), apply_as_deletes=expr("op = 'D'"),
    column_list=["name", "id"],
)
dp.create_streaming_table("counts")
dp.create_auto_cdc_flow(target="counts", source="counted", keys=["id"], sequence_by="seq")


@dp.temporary_view
def streamed():
    return spark.readStream.format("delta").load("{path}")
"""
STREAMED = "CREATE TEMPORARY VIEW counted AS SELECT c.id, c.seq, c.op IS NULL AS corrected FROM STREAM (changes) AS c;"


def test_auto_cdc_keeps_the_latest_row_of_each_key(shop: Shop) -> None:
    """Protects from late, repeated and deleted events."""
    shop.sql(
        "CREATE TABLE {db}.changes (id INT, name STRING, op STRING, seq BIGINT) USING delta",
        "INSERT INTO {db}.changes VALUES (1, 'Ann', 'I', 1), (2, 'Bob', 'I', 2), (2, 'Bob', 'D', 5), "
        "(4, 'Dan', 'I', 1), (4, 'Dan', 'D', 5), (5, 'Eve', 'I', 1)",
    )
    shop.write("cdc.py", CDC.format(path=shop.folder / "tables" / "changes"))
    shop.write("streamed.sql", STREAMED)
    latest = (
        "SELECT id, name FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS place "
        "FROM {db}.changes) WHERE place = 1 AND NOT (op <=> 'D')"
    )
    counted = "SELECT id, max(seq) AS seq, max_by(op IS NULL, seq) AS corrected FROM {db}.changes GROUP BY id"
    shop.oracles = {"people": latest, "names": latest, "counts": counted}
    shop.refresh()
    assert sorted(shop.table("people").collect()) == [(1, "Ann"), (5, "Eve")]
    shop.sql(
        "INSERT INTO {db}.changes VALUES (2, 'late', 'U', 4), (1, 'Anne', NULL, 7), (1, 'Ann', 'I', 1), "
        "(4, 'Dan', 'I', 9), (5, 'Eve', 'D', 8), (3, NULL, 'I', 1)"
    )
    shop.refresh()
    assert sorted(shop.table("people").collect()) == [(1, "Anne"), (3, None), (4, "Dan")]
    for event, missing in (("(NULL, 'x', 'I', 10)", "key id"), ("(4, 'x', 'I', NULL)", "sequence")):
        shop.sql(f"INSERT INTO {{db}}.changes VALUES {event}")
        report = shop.run(refresh=("people",))
        assert f"an event of changes has a NULL {missing}. Correct the data." in report["people"].error
        shop.sql("DELETE FROM {db}.changes WHERE id IS NULL OR seq IS NULL")
    shop.sql("INSERT INTO {db}.changes VALUES (4, 'Daniel', 'U', 10)")
    assert shop.run(refresh=("people",)).ok
    assert sorted(shop.table("people").collect()) == [(1, "Anne"), (3, None), (4, "Daniel")]


CDC_OF_FILES = """
from pyspark import pipelines as dp


@dp.temporary_view
def arriving():
    files = spark.readStream.schema("id INT, name STRING, op STRING, seq BIGINT").json("{path}")
    return files.unionByName(spark.readStream.table("changes"))


for target in ["people", "deleted"]:
    dp.create_streaming_table(target)
    dp.create_auto_cdc_flow(
        target=target, source="arriving", keys=["id"], sequence_by="seq",
        apply_as_deletes="op = 'D'" if target == "people" else None, column_list=["id", "name"],
    )
"""
ARRIVING = """
    WITH events AS (SELECT id, name, op, seq FROM {db}.changes UNION ALL SELECT * FROM {db}.files)
    SELECT id, latest.name FROM (SELECT id, max_by(struct(name, op), seq) AS latest FROM events GROUP BY id)
"""


def test_auto_cdc_keeps_the_events_of_files(shop: Shop) -> None:
    """Protects from events that are lost when their files are gone, or when one of two targets is rebuilt."""
    folder = shop.folder / "arriving"

    def arrive(number: int, *events: tuple[int | None, str | None, str, int]) -> None:
        rows = [dict(zip(("id", "name", "op", "seq"), event, strict=True)) for event in events]
        (folder / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
        values = ", ".join(str(event).replace("None", "NULL") for event in events)
        shop.sql(f"INSERT INTO {{db}}.files VALUES {values}")

    folder.mkdir()
    shop.sql(
        "CREATE TABLE {db}.changes (id INT, name STRING, op STRING, seq BIGINT) USING delta",
        "CREATE TABLE {db}.files (id INT, name STRING, op STRING, seq BIGINT) USING delta",
        "INSERT INTO {db}.changes VALUES (1, 'Ann', 'I', 1), (2, 'Bob', 'I', 2)",
    )
    shop.write("cdc.py", CDC_OF_FILES.format(path=folder))
    shop.oracles = {"people": f"{ARRIVING} WHERE NOT (latest.op <=> 'D')", "deleted": ARRIVING}
    arrive(1, (1, "Anne", "U", 4), (3, "Cy", "I", 1))
    assert {done.name for done in shop.refresh().datasets} == {"people", "people__events", "deleted", "deleted__events"}
    arrive(2, (2, None, "D", 9), (1, "late", "U", 3))
    shop.sql("INSERT INTO {db}.changes VALUES (2, 'later', 'U', 5), (3, 'Cyd', 'U', 6)")
    assert shop.run(refresh=("people", "deleted")).ok
    shop.check()
    arrive(3, (None, "Di", "I", 1))
    failed = shop.run(refresh=("people",))["people__events"].error
    assert "AUTO CDC into people: an event of arriving has a NULL key id. Correct the" in failed
    arrive(3, (4, "Di", "I", 1))  # the file is corrected
    assert shop.run(refresh=("people",)).ok
    (folder / "1.json").unlink()
    shop.run(full_refresh=("people",))
    assert sorted(shop.table("people").collect()) == [(1, "late"), (3, "Cyd"), (4, "Di")]
    assert sorted(shop.table("deleted").collect()) == [(1, "Anne"), (2, None), (3, "Cyd")]


ROW_BY_ROW = """
from pyspark import pipelines as dp
from pyspark.sql import functions as F


def streamed():
    return spark.readStream.table("orders")


VIEWS = {
    "filtered": lambda: streamed().where("amount > 1").select("customer", F.upper("status").alias("status"), "amount"),
    "united": lambda: streamed().unionByName(spark.readStream.table("orders")),
    "timed": lambda: streamed().withColumn("at", F.current_timestamp()),
    "joined": lambda: streamed().join(spark.table("customers"), "customer"),
    "once": lambda: streamed().dropDuplicates(),
    "drawn": lambda: streamed().withColumn("at", F.rand()),
    "among": lambda: spark.sql("SELECT * FROM STREAM orders WHERE customer IN (SELECT customer FROM customers)"),
}
for name, function in VIEWS.items():
    dp.temporary_view(name=f"{name}_view")(function)
    dp.create_streaming_table(name)
    dp.create_auto_cdc_flow(target=name, source=f"{name}_view", keys=["customer"], sequence_by="amount")
"""


def test_events_are_kept_where_a_stream_has_others_than_its_tables(mixed: Shop) -> None:
    """Protects from events that change after they came: their time, or what they were joined with."""
    mixed.write("row_by_row.py", ROW_BY_ROW)
    kept = {node.name for node in mixed.load().reads.order if node.name.endswith("__events")}
    assert kept == {f"{name}__events" for name in ("timed", "joined", "once", "drawn", "among")}


def test_another_process_finds_the_streaming_tables(shop: Shop) -> None:
    """Protects from a catalog in memory that has not even the database of the project."""
    shop.sql("CREATE TABLE {db}.app (id INT) USING delta", "INSERT INTO {db}.app VALUES (1), (2)")
    apps = f"CREATE STREAMING TABLE apps AS SELECT id FROM STREAM delta.`{shop.folder}/tables/app`;"
    shop.write("apps.sql", f"{apps} CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM apps;")
    project = replace(shop.load().project, database=f"{shop.database}_other")
    opened = OpenProject(project, shop.spark)
    opened.open()
    assert run_project(opened, Selection(), None).ok
    shop.sql("DROP DATABASE {db}_other CASCADE")
    assert OpenProject(project, shop.spark).find_view("counted").verify().ok


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


@dp.temporary_view
def ticks():
    return spark.readStream.format("rate").load()


@dp.append_flow(target="out")
def to_out():
    return spark.readStream.format("rate").load()


@dp.materialized_view
def above():
    return spark.table("parquet")


@dp.table
def ordered():
    return spark.readStream.format("rate").load().orderBy("value")


@dp.table
def counted():
    return spark.readStream.table("batch").groupBy("status").count()


dp.create_streaming_table("keyless")
dp.create_auto_cdc_flow(
    target="keyless", source="orders", keys=["customer"], sequence_by="amount", except_column_list=["customer"]
)
dp.create_streaming_table("latest")
dp.create_auto_cdc_flow(target="latest", source="ticks", keys=["value"], sequence_by="timestamp")


@dp.materialized_view
def latest__events():
    return spark.table("orders")
"""
REFUSED_SQL = """SET spark.sql.ansi.enabled = false;
CREATE MATERIALIZED VIEW nowhere AS
  SELECT * FROM not_there;
CREATE MATERIALIZED VIEW declared (a STRING) AS SELECT 1 AS a;
CREATE MATERIALIZED VIEW one AS SELECT * FROM two; CREATE MATERIALIZED VIEW two AS SELECT * FROM one;\
CREATE MATERIALIZED VIEW twice USING csv TBLPROPERTIES ('deltafold.refresh_policy' = 'never') AS SELECT 1 AS a;
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
        "transformations/c.py, line 42: ordered: Spark cannot analyse the query: ",
        "Sorting is not supported on streaming DataFrames",
        "transformations/c.py, line 52: keyless: AUTO CDC into keyless: its columns leave out the key customer.",
        "line 56: latest: query: the events that it streams are kept in the table latest__events, and a dataset of "
        "that name is declared in transformations/c.py, line 60. Rename that.",
        "transformations/d.sql, line 1: SetCommand: this statement declares nothing",
        "transformations/d.sql, line 2: nowhere: query: it reads spark_catalog.",
        "transformations/d.sql, line 4: declared: query: it declares the columns (a string)",
        "the datasets read each other in a cycle (one → two → one)",
        "transformations/d.sql, line 6: Spark cannot parse the statement",
        "twice: format csv is not supported. Use delta, or leave it out. unknown deltafold.refresh_policy 'never'.",
    ):
        assert reason in refusals
    for consequence in ("to_out", "above", "counted"):
        assert f"{consequence}: " not in refusals
    assert not mixed.spark.catalog.tableExists(f"{mixed.database}.by_customer")


def test_what_cannot_be_maintained_is_refused_under_a_strict_policy(mixed: Shop) -> None:
    by_map = "AS SELECT count(*) AS n FROM orders GROUP BY map('status', status)"
    strict = "TBLPROPERTIES ('deltafold.refresh_policy' = 'incremental_strict')"
    mixed.write("e.sql", f"CREATE MATERIALIZED VIEW sizes {strict} {by_map};")
    assert mixed.refusals()[0].startswith("transformations/e.sql, line 1: sizes: ")
    mixed.write("e.sql", f"CREATE MATERIALIZED VIEW sizes {strict.replace('_strict', '')} {by_map};")
    mixed.oracles = {"sizes": "SELECT count(*) AS n FROM {db}.orders GROUP BY status"}
    assert mixed.run(refresh=("sizes",))["sizes"].outcome == "refreshed"
    mixed.check()


def test_the_commands_run_a_project(mixed: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a dataset that fails and stops others, and from an exit code of 0 then."""
    mixed.load()
    monkeypatch.chdir(mixed.folder / "transformations")
    done = call("dry-run")
    assert done.exit_code == 0, done.output
    assert "segments: reads by_customer" in done.stdout
    assert not mixed.spark.catalog.tableExists(f"{mixed.database}.by_customer")
    done = call("run", "--refresh", "revenue_de, segments", "--json")
    refreshed = {dataset["name"] for dataset in json.loads(done.stdout)["datasets"]}
    assert refreshed == {"by_customer", "revenue_de", "segments"}, done.output
    mixed.write("f.sql", "CREATE MATERIALIZED VIEW broken AS SELECT CAST(status AS INT) AS number FROM orders;"
                "CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM broken;")  # fmt: skip
    mixed.write("g.py", 'from pyspark import pipelines as dp\ndp.create_sink("out", "kafka", {})')
    done = call("run", "--spec", str(mixed.folder / "spark-pipeline.yml"))
    assert "transformations/g.py, line 2: out: failed with QueryError: sinks are not supported." in done.stdout
    assert done.exit_code not in (0, 70), done.output
    assert "above: skipped because broken failed" in done.stdout
    assert "8 datasets: 2 refreshed, 3 nothing to do, 2 failed, 1 skipped; " in done.stdout
    mixed.check()
    shown = json.loads(call("show", "revenue_de", "--json").stdout)  # in the folder of the project
    assert len(shown) == mixed.table("revenue_de").count() > 0
    assert call("verify", "revenue_de", "--spec", str(mixed.folder / "spark-pipeline.yml")).exit_code == 0
    assert "it has no dataset `revenue_d`. Did you mean `revenue_de`?" in call("explain", "revenue_d").stderr
    states = {row["name"]: row["state"] for row in json.loads(call("status", "--json").stdout)}
    assert states["revenue_de"] == "up to date" and states["broken"] == "never refreshed"
    assert call("run", "--refresh", "nothing").exit_code == 2
    assert "Run `deltafold run --full-refresh segments`" in call("rebuild", "segments").stderr
    assert "spark-pipeline.yml: deltafold dry-run" in call("list").stdout
    assert call("run", "--full-refresh-all", "--refresh", "segments").exit_code == 2


def test_a_terminal_shows_the_latest_step_of_each_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown: list[str] = []
    show = show_datasets(shown.append)
    for step in ("a: begins", "b: begins", "a: done"):
        show(step)
    assert shown[-1] == "b: begins\na: done"
