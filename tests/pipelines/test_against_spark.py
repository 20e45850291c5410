"""Unmodified projects, run by `spark-pipelines` and by Deltafold: all tables are equal after every change."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import SourceError
from deltafold.algebra.results.pipeline_report import PipelineReport
from deltafold.demo import project_demo
from deltafold.demo.spark_pipelines import ConnectServer
from deltafold.pipelines.declarative import load_project
from deltafold.pipelines.open_project import OpenProject
from deltafold.pipelines.project_run import run_project
from deltafold.pipelines.project_selection import Selection
from tests.night import night
from tests.properties.comparing import difference

pytestmark = night
OURS, THEIRS = "ours", "theirs"
METADATA = "__spark_autocdc_metadata"  # Spark's own column in the target of an AUTO CDC flow


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> ConnectServer:
    """A server on the session's Spark, so that both tools have one catalog."""
    return ConnectServer.start(spark)


@dataclass
class Twins:
    """One project in two folders and databases; changes are SQL over the database of the sources."""

    spark: SparkSession
    server: ConnectServer
    root: Path
    mark: str

    def write(self, files: dict[str, str]) -> None:
        """Write the same files in both projects, beside those of `spark-pipelines init`."""
        for owner in (OURS, THEIRS):
            folder = self.root / owner
            if not folder.exists():
                self.root.mkdir(exist_ok=True)
                command = [sys.executable, "-m", "pyspark.pipelines.cli", "init", "--name", owner]
                subprocess.run(command, cwd=self.root, check=True, capture_output=True)
                spec = folder / "spark-pipeline.yml"
                delta = "configuration:\n  spark.sql.sources.default: delta\n"
                spec.write_text(f"{spec.read_text()}database: {self.database(owner)}\n{delta}")
            for name, text in files.items():
                text = text.replace("{src}", self.database("src")).replace("{files}", str(self.root / "files"))
                (folder / "transformations" / name).write_text(text)

    def database(self, owner: str) -> str:
        return f"{owner}_{self.mark}"

    def drop_file(self, name: str, *lines: str) -> None:
        """Write a file with lines of JSON, or replace it."""
        path = self.root / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))

    def sql(self, *statements: str) -> None:
        for statement in statements:
            cast(Any, self.spark).sql(statement.replace("{src}", self.database("src")))

    def run_spark(self) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "SPARK_REMOTE": self.server.address}
        command = [sys.executable, "-m", "pyspark.pipelines.cli", "run"]
        return subprocess.run(
            command, cwd=self.root / THEIRS, env=environment, capture_output=True, text=True, check=False
        )

    def run_ours(self) -> PipelineReport:
        opened = OpenProject(load_project(self.root / OURS / "spark-pipeline.yml", self.spark), self.spark)
        opened.open()
        return run_project(opened, Selection(), None)

    def compare(self) -> None:
        """Run both, and compare all tables."""
        done, report = self.run_spark(), self.run_ours()
        assert done.returncode == 0, done.stdout + done.stderr
        assert report.ok, [dataset.sentence for dataset in report.datasets]
        wrong = dict[str, object]()
        for dataset in report.datasets:
            ours, theirs = (self.spark.table(f"{self.database(owner)}.{dataset.name}") for owner in (OURS, THEIRS))
            assert ours.dtypes == theirs.dtypes, dataset.name
            if different := difference(ours.collect(), theirs.collect()):
                wrong[dataset.name] = different
        assert not wrong


@pytest.fixture
def twins(spark: SparkSession, server: ConnectServer, tmp_path: Path) -> Iterator[Twins]:
    twins = Twins(spark, server, tmp_path / "projects", uuid4().hex[:8])
    for owner in ("src", OURS, THEIRS):
        twins.sql(f"CREATE DATABASE {twins.database(owner)} LOCATION '{tmp_path / owner}'")
    yield twins
    for owner in ("src", OURS, THEIRS):
        twins.sql(f"DROP DATABASE {twins.database(owner)} CASCADE")


# the constructs of the guide, in its order, over tables of a taxi company
GUIDE = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, collect_list, max, sum


@dp.materialized_view
def trips_as_they_are() -> DataFrame:
    return spark.table("{src}.trips")


@dp.materialized_view(
    name="named", comment="by its argument", table_properties={"team": "taxi"}, partition_cols=["zone"]
)
def other_name() -> DataFrame:
    return spark.read.table("{src}.trips").groupBy("zone").agg(sum("fare").alias("fares"), max("fare").alias("m"))


@dp.temporary_view
def long_trips() -> DataFrame:
    return spark.table("{src}.trips").where("fare > 20")


@dp.table
def streamed() -> DataFrame:
    return spark.readStream.table("{src}.rides")


@dp.materialized_view
def ride_zones() -> DataFrame:
    return spark.table("streamed").join(spark.table("zones"), "zone").groupBy("borough").count()


@dp.materialized_view
def zones() -> DataFrame:
    return spark.table("{src}.zones").withColumnRenamed("area", "borough")


@dp.materialized_view
def prices() -> DataFrame:
    return spark.read.format("json").load("{files}/prices")


@dp.materialized_view
def priced() -> DataFrame:
    return spark.table("prices").join(spark.table("named"), "zone").select("zone", "price", "fares")


@dp.table
def sightings() -> DataFrame:
    return spark.readStream.format("json").schema("zone STRING, seen INT").load("{files}/sightings")


boroughs = spark.table("{src}.boroughs").select(collect_list("name")).collect()[0][0]

for borough in boroughs:

    @dp.materialized_view(name=f"{borough.lower()}_trips")
    def of_borough(borough=borough) -> DataFrame:
        long, zones = spark.table("long_trips"), spark.table("zones")
        return (
            long.join(zones, long.zone == zones.zone)
            .select(long.id, long.zone, col("fare"), col("borough"))
            .filter(f"borough = '{borough}'")
        )


dp.create_streaming_table("all_rides", comment="of both companies", partition_cols=["zone"])


@dp.append_flow(target="all_rides")
def first_company() -> DataFrame:
    return spark.readStream.table("{src}.rides")


@dp.append_flow(target="all_rides", name="second")
def second_company() -> DataFrame:
    return spark.readStream.table("{src}.other_rides").withColumn("tip", col("id") * 2)
"""
GUIDE_SQL = """
CREATE MATERIALIZED VIEW plain AS SELECT * FROM {src}.trips;

CREATE TEMPORARY VIEW short_trips AS SELECT * FROM {src}.trips WHERE fare <= 20;

CREATE STREAMING TABLE streamed_in_sql AS SELECT id, zone FROM STREAM {src}.rides;

CREATE MATERIALIZED VIEW trips_of_zones AS
SELECT t.id, z.borough, double(t.fare) fare FROM short_trips t INNER JOIN zones z ON t.zone = z.zone;

CREATE MATERIALIZED VIEW by_borough COMMENT 'number; of short trips' TBLPROPERTIES ('team' = 'taxi') AS
SELECT borough, count(*) n, sum(fare) s FROM trips_of_zones GROUP BY borough;

CREATE STREAMING TABLE both;

CREATE FLOW from_first AS INSERT INTO both BY NAME SELECT * FROM STREAM({src}.rides);

CREATE FLOW from_second AS INSERT INTO both BY NAME SELECT * FROM STREAM({src}.other_rides);

CREATE MATERIALIZED VIEW tips AS SELECT zone, sum(tip) tips, count(*) n FROM all_rides GROUP BY zone;

CREATE MATERIALIZED VIEW ranked AS
SELECT id, zone, fare, rank() OVER (PARTITION BY zone ORDER BY fare DESC, id) place FROM {src}.trips;

CREATE MATERIALIZED VIEW without_trips AS
SELECT zone, borough FROM zones WHERE zone NOT IN (SELECT zone FROM {src}.trips WHERE zone IS NOT NULL);
"""
SOURCES = (
    "CREATE TABLE {src}.trips (id INT, zone STRING, fare DECIMAL(8, 2)) USING delta",
    "CREATE TABLE {src}.zones (zone STRING, area STRING) USING delta",
    "CREATE TABLE {src}.rides (id INT, zone STRING) USING delta",
    "CREATE TABLE {src}.other_rides (id INT, zone STRING) USING delta",
    "CREATE TABLE {src}.boroughs USING delta AS SELECT * FROM VALUES ('North'), ('South') t(name)",
    "INSERT INTO {src}.trips VALUES (1, 'a', 10), (2, 'a', 30.5), (3, 'b', 20), (4, NULL, 99), (5, 'c', NULL)",
    "INSERT INTO {src}.zones VALUES ('a', 'North'), ('b', 'South'), ('d', 'South'), (NULL, 'North')",
    "INSERT INTO {src}.rides VALUES (1, 'a'), (2, 'b'), (2, 'b')",
    "INSERT INTO {src}.other_rides VALUES (7, 'a')",
)
CHANGES = (
    (
        "INSERT INTO {src}.trips VALUES (6, 'b', 70), (6, 'b', 70), (7, 'd', 1)",
        "UPDATE {src}.trips SET fare = fare + 1, zone = 'a' WHERE id IN (3, 5)",
        "INSERT INTO {src}.rides VALUES (3, 'd'), (4, NULL)",
    ),
    (
        "MERGE INTO {src}.zones t USING (SELECT 'b' zone, 'North' area UNION ALL SELECT 'e', 'East') s "
        "ON t.zone = s.zone WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "DELETE FROM {src}.trips WHERE id = 2",
        "INSERT INTO {src}.other_rides VALUES (8, 'e'), (9, 'b')",
    ),
    (
        "ALTER TABLE {src}.trips ADD COLUMN note STRING",
        "ALTER TABLE {src}.rides ADD COLUMN note STRING",
        "INSERT INTO {src}.trips VALUES (8, 'e', 25, 'new')",
        "INSERT INTO {src}.rides VALUES (10, 'e', 'new')",
        "DELETE FROM {src}.trips WHERE id = 6",
    ),
)


def test_the_projects_of_init_and_of_the_guide(twins: Twins) -> None:
    twins.sql(*SOURCES)
    twins.drop_file("prices/a.json", '{"zone": "a", "price": 3}', '{"zone": "b", "price": 4}')
    twins.drop_file("sightings/1.json", '{"zone": "a", "seen": 1}')
    twins.write({"guide.py": GUIDE, "guide.sql": GUIDE_SQL})
    twins.compare()
    for number, change in enumerate(CHANGES):
        twins.sql(*change)
        twins.drop_file("prices/a.json", '{"zone": "a", "price": 3}', f'{{"zone": "d", "price": {number}}}')
        twins.drop_file(f"sightings/more{number}.json", f'{{"zone": "b", "seen": {number}}}')
        twins.compare()


CDC = """
from pyspark import pipelines as dp

dp.create_streaming_table("people")
dp.create_auto_cdc_flow(
    target="people", source="events", keys=["id", "region"], sequence_by="seq", apply_as_deletes="op = 'D'",
    except_column_list=["op", "seq"],
)


@dp.temporary_view
def events():
    return spark.readStream.table("{src}.events")
"""
BATCHES = (
    "(1, 'x', 'Ann', 'I', 1), (2, 'x', 'Bob', 'I', 2), (2, 'x', 'Bob', 'D', 5), (3, 'y', 'Cid', NULL, 1)",
    "(2, 'x', 'late', 'U', 4), (1, 'x', 'Anne', NULL, 7), (1, 'x', 'Ann', 'I', 1), (4, 'x', NULL, 'D', 1)",
    "(2, 'y', 'Bob', 'I', 9), (1, 'x', 'Anne', 'D', 8), (1, 'x', 'later', 'I', 6), (3, 'y', 'Cid', 'D', 2)",
    "(3, 'y', 'again', 'I', 3), (3, 'y', 'between', 'U', 2), (4, 'x', 'Dan', 'I', 0), (1, 'x', 'Anne', 'D', 8)",
    "(4, 'x', 'Dan', 'I', 5), (1, 'x', 'back', 'U', 10), (3, 'y', NULL, 'U', 4)",
)


class SparkMerge:
    """Spark's own merge of AUTO CDC micro-batches (SCD 1), which `spark-pipelines` refuses to start on Delta tables."""

    def __init__(self, spark: SparkSession, database: str) -> None:
        self._jvm = cast(Any, spark.sparkContext)._jvm
        package = self._jvm.org.apache.spark.sql.pipelines.autocdc
        keys, left_out = (self._names(*names) for names in (("id", "region"), ("op", "seq")))
        sequence, deletes = cast(Any, F.col("seq"))._jc, cast(Any, F.expr("op = 'D'"))._jc
        excluded = getattr(package, "ColumnSelection$ExcludeColumns")(left_out)
        once = getattr(getattr(package, "ScdType$Type1$"), "MODULE$")
        some = self._jvm.scala.Option.apply
        arguments = package.ChangeArgs(keys, sequence, once, some(deletes), some(excluded))
        processor = package.Scd1BatchProcessor(arguments, cast(Any, spark)._jsparkSession.parseDataType('"long"'))
        tables = (
            self._jvm.org.apache.spark.sql.catalyst.TableIdentifier(name, some(database))
            for name in ("deleted", "people")
        )
        self._handler = package.Scd1ForeachBatchHandler(processor, *tables)

    def merge(self, events: DataFrame) -> None:
        self._handler.execute(cast(Any, events)._jdf, 0)

    def _names(self, *names: str) -> Any:
        made = [self._jvm.org.apache.spark.sql.pipelines.autocdc.UnqualifiedColumnName(name) for name in names]
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(self._jvm.java.util.ArrayList(made)).toSeq()


def test_auto_cdc(twins: Twins) -> None:
    """Late, repeated and deleted events; at a NULL key or sequence both stop."""
    twins.sql("CREATE TABLE {src}.events (id INT, region STRING, name STRING, op STRING, seq BIGINT) USING delta")
    twins.write({"cdc.py": CDC})
    theirs, metadata = twins.database(THEIRS), f"{METADATA} STRUCT<deleteSequence: BIGINT, upsertSequence: BIGINT>"
    twins.sql(
        f"CREATE TABLE {theirs}.people (id INT, region STRING, name STRING, {metadata}) USING delta",
        f"CREATE TABLE {theirs}.deleted (id INT, region STRING, {metadata}) USING delta",
    )
    spark_merge = SparkMerge(twins.spark, theirs)
    columns = twins.spark.table(f"{twins.database('src')}.events").schema

    def arrive(rows: str) -> DataFrame:
        twins.sql(f"INSERT INTO {{src}}.events VALUES {rows}")
        batch = cast(Any, twins.spark).sql(f"SELECT * FROM VALUES {rows} t({', '.join(columns.names)})")
        return batch.to(columns)

    for batch in BATCHES:
        spark_merge.merge(arrive(batch))
        assert twins.run_ours().ok
        ours, merged = (twins.spark.table(f"{twins.database(owner)}.people") for owner in (OURS, THEIRS))
        assert not difference(ours.collect(), merged.drop(METADATA).collect()), batch
    for event, null in (("(NULL, 'x', 'x', 'I', 10)", "KEY"), ("(4, 'x', 'x', 'I', NULL)", "SEQUENCE")):
        batch = arrive(event)
        with pytest.raises(PySparkException, match=f"AUTOCDC_MICROBATCH_VALIDATION.NULL_{null}"):
            spark_merge.merge(batch)
        assert f"has a NULL {null.lower()}" in twins.run_ours()["people"].error
        twins.sql("DELETE FROM {src}.events WHERE id IS NULL OR seq IS NULL")


def test_the_demo_of_a_project(
    spark: SparkSession,
    server: ConnectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All tables are equal after each change; without its token nobody is served."""
    monkeypatch.setattr(project_demo, "CORRECTED", "2013-01-01")
    assert project_demo.play_project(tmp_path / "demo", spark, server, years=2, first=3)
    shown = capsys.readouterr().out.split("\nchange ")[1].splitlines()[2:8]
    _, _, changed, _, _, tables = zip(*(re.split("  +", line.strip()) for line in shown), strict=True)
    assert tables == ("7 equal",) * 6
    assert changed[-1] != "0"  # an airline got another name
    with pytest.raises(SourceError, match=r"(?i)authenticat"):
        ConnectServer(server.address.partition("/;")[0]).run(tmp_path / "demo" / "theirs")
