"""Avro files: landed, corrected, and refused where Spark would half read them."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.api import Stream
from deltafold.spark import catalyst
from deltafold.spark.jvm.jars import add_jars, avro_package
from tests.landing.format_drop import Drop
from tests.sandbox import checked


def avro_file(spark: SparkSession, path: Path, rows: list[tuple[Any, ...]], schema: str, **options: str) -> Path:
    """Write rows as one Avro file."""
    add_jars(spark, avro_package())
    folder = path.parent / f"_{path.name}"
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    frame.write.format("avro").options(**options).mode("overwrite").save(str(folder))
    (written,) = folder.glob("part-*.avro")
    return written.replace(path)


AVRO = "id BIGINT, s STRING, at TIMESTAMP, d DECIMAL(9, 2), p STRUCT<x: INT, y: ARRAY<STRING>>, day INT"
AVRO_FILE = "id BIGINT, S STRING, at TIMESTAMP, d DECIMAL(9, 2), p STRUCT<x: INT, y: ARRAY<STRING>>, extra INT"


def test_avro(spark: SparkSession, tmp_path: Path) -> None:
    """Logical and nested types of every codec; a view under corrections, and files that Spark would half read."""
    drop = Drop(spark, tmp_path, "avro", AVRO, partition_by="day")
    at, d = datetime(2024, 5, 1, 12), Decimal("1.50")
    row, nulls = (1, "x", at, d, (7, ["a", None]), 9), (None,) * 6
    path = avro_file(spark, drop.put("day=1/a.avro", b""), [row, nulls], AVRO_FILE)
    avro_file(spark, drop.put("day=2/b.avro", b""), [row], AVRO_FILE, compression="deflate")
    landed = (1, "x", at, d, (7, ["a", None]))
    assert drop.rows() == [(*landed, 1), (*landed, 2), (None, None, None, None, None, 1)]
    view = drop.warehouse.view("v", "select s, count(*) n, sum(d) d, max(p.x) x from t group by s")
    checked(view)
    avro_file(spark, drop.folder / "day=2/b.avro", [row, row], AVRO_FILE, compression="snappy")
    drop.warehouse.land("t")
    checked(view)
    whole = path.read_bytes()
    for content in (b"", b"Obj\x01", whole[:50], whole[:-9], b"id,s\n1,2\n"):
        path.write_bytes(content)
        drop.refused(path, "")
    for schema, reason in (
        ("id BIGINT, s STRING, at TIMESTAMP, d DECIMAL(9, 2)", " lacks the column p of the declared schema"),
        (AVRO_FILE.replace("BIGINT", "STRING"), " has a column id of type string, in the declared schema bigint"),
        (AVRO_FILE.replace("x: INT", "z: INT"), " has a column p of type struct<z:int,y:array<string>>"),
        (AVRO_FILE.replace("d DECIMAL(9, 2)", "d DECIMAL(11, 3)"), " has a column d of type decimal(11,3)"),
    ):
        avro_file(spark, path, [nulls[: schema.count(",") + 1 - schema.count("(9, 2)") - schema.count("y:")]], schema)
        drop.refused(path, reason)


def test_avro_that_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from an error without its file, and from blaming the schema for a block that is cut off."""
    drop = Drop(spark, tmp_path, "avro", "id BIGINT")
    path = avro_file(spark, drop.put("a.avro", b""), [(i,) for i in range(2000)], "id BIGINT")
    path.write_bytes(path.read_bytes()[:-600])
    drop.refused(path, " is damaged, or a value in it does not fit the declared schema: ")
    drop.warehouse.source("s", Stream("avro", "id BIGINT", path=str(drop.folder)))
    with pytest.raises(SourceError, match=rf"Spark could not read its stream at {path}: "):
        drop.warehouse.land("s")


def test_avro_without_records(spark: SparkSession, tmp_path: Path) -> None:
    """A file may hold bare numbers: there are no columns."""
    drop = Drop(spark, tmp_path, "avro", "id BIGINT")
    add_jars(spark, avro_package())
    avro = catalyst.jvm(spark).org.apache.avro
    writer = avro.file.DataFileWriter(avro.generic.GenericDatumWriter())
    path = drop.put("a.avro", b"")
    writer.create(avro.Schema.Parser().parse('"int"'), catalyst.jvm(spark).java.io.File(str(path))).close()
    drop.refused(path, " has values of type int instead of Avro records")


def test_avro_of_another_logical_type(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from an object of Java's in the sentence."""
    drop = Drop(spark, tmp_path, "avro", "at TIMESTAMP_NTZ")
    path = avro_file(spark, drop.put("a.avro", b""), [(datetime(2024, 5, 1),)], "at TIMESTAMP")
    drop.refused(path, " is damaged, or a value in it does not fit the declared schema: Avro's TimestampMicros cannot")


def test_avro_by_a_schema(spark: SparkSession, tmp_path: Path) -> None:
    """`avroSchema` gives older files the default of a newer field; one that is no schema is named."""
    fields = [{"name": "id", "type": "long"}, {"name": "kind", "type": "string", "default": "plain"}]
    newer = json.dumps({"type": "record", "name": "topLevelRecord", "fields": fields})
    drop = Drop(spark, tmp_path, "avro", "id BIGINT, kind STRING", options={"avroSchema": newer})
    older = avro_file(spark, drop.put("a.avro", b""), [(1,)], "id BIGINT NOT NULL")
    assert drop.rows() == [(1, "plain")]
    other = Drop(spark, older.parent, "avro", "id BIGINT", options={"avroSchema": "{"})
    other.refused(avro_file(spark, other.put("a.avro", b""), [(1,)], "id BIGINT"), " has an Avro schema, or its source")
