"""Files of every format beside CSV, JSON and Parquet: landed, corrected, compressed, and refused where malformed."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import Format
from deltafold.api import Files, Mrql, Stream
from tests.landing.format_drop import Drop
from tests.sandbox import checked

CITIES = "<cities>{}</cities>"
OSLO = '<city id="1"><name>Oslo</name><at><lat>59.9</lat></at><river>Alna</river><river>Frogner</river></city>'
ROME = '<city id="2"><name>Rome &amp; Ostia</name><!-- <city id="9"/> --></city>'
CITY = "_id INT, name STRING, pop INT, at STRUCT<lat: DOUBLE>, river ARRAY<STRING>"
ROW_TAG = {"rowTag": "city"}


def test_xml(spark: SparkSession, tmp_path: Path) -> None:
    """Attributes, nested and repeated elements, entities, comments, and files compressed by gzip and bzip2."""
    drop = Drop(spark, tmp_path, "xml", f"{CITY}, day INT", partition_by="day", options=ROW_TAG)
    drop.put("day=1/a.xml", CITIES.format(OSLO + ROME))
    drop.put("day=2/b.xml.gz", gzip.compress(CITIES.format(OSLO).encode()))
    drop.put("day=2/c.xml.bz2", bz2.compress(CITIES.format(ROME).encode()))
    oslo, rome = (1, "Oslo", None, (59.9,), ["Alna", "Frogner"]), (2, "Rome & Ostia", None, None, None)
    assert drop.rows() == [(*oslo, 1), (*oslo, 2), (*rome, 1), (*rome, 2)]
    view = drop.warehouse.view("v", "select _id, count(*) n, max(at.lat) lat from t group by _id")
    checked(view)
    drop.put("day=2/c.xml.bz2", bz2.compress(CITIES.format(ROME * 2).encode()))
    drop.warehouse.land("t")
    checked(view)


def test_xml_as_variant(spark: SparkSession, tmp_path: Path) -> None:
    """Elements of any shape in one column."""
    options = {**ROW_TAG, "singleVariantColumn": "v"}
    drop = Drop(spark, tmp_path, "xml", "v VARIANT, day INT", partition_by="day", options=options)
    drop.put("day=%31/a.xml", CITIES.format(OSLO + ROME))
    assert [row[1] for row in drop.rows()] == [1, 1]
    view = drop.warehouse.view("v", "select variant_get(v, '$.name', 'string') name, count(*) n from t group by 1")
    checked(view)
    assert sorted(row["name"] for row in view.answer().collect()) == ["Oslo", "Rome & Ostia"]


def test_json_as_variant(spark: SparkSession, tmp_path: Path) -> None:
    """Lines of any shape, in partitions whose values are not numbers."""
    options = {"singleVariantColumn": "v"}
    drop = Drop(spark, tmp_path, "json", "v VARIANT, day STRING", partition_by="day", options=options)
    path = drop.put("day=a%3Db/a.json", '{"k": 1}\n[2]\n3\n')
    assert [row[1] for row in drop.rows()] == ["a=b"] * 3
    path.write_text('{"k": 1}\n{"k"\n')
    drop.refused(path, "does not fit the declared schema")
    with pytest.raises(SourceError, match="rows read as one VARIANT cannot be quarantined"):
        Files(str(drop.folder), "json", "v VARIANT", options=options, malformed="quarantine")
    with pytest.raises(SourceError, match="rows of xml files cannot be quarantined"):
        Files(str(drop.folder), "xml", CITY, options=ROW_TAG, malformed="quarantine")


MALFORMED_XML = {
    "ends within a row": (CITIES.format(OSLO)[:-20], ", line 1, is not well-formed XML"),
    "not nested": (CITIES.format("<city><name></city></name>"), ", line 1, is not well-formed XML (mismatched tag)"),
    "other element": ("<towns><town/></towns>", " has no element city, the `rowTag` of its source"),
    "entity": (
        '<!DOCTYPE a [<!ENTITY e "x">]><a><city><name>&e;</name></city></a>',
        " defines or refers to the entity",
    ),
    "encoding": (
        '<?xml version="1.0" encoding="latin-1"?><a><city/></a>',
        " declares the encoding latin-1 and is read",
    ),
    "encoding of letters": (
        b'<?xml version="1.0" encoding="ISO-8859-1"?>\n<a><city><name>\xe5</name></city></a>',
        " declares the encoding ISO-8859-1 and is read as UTF-8: set the option `encoding`",
    ),
    "no UTF-8": (b"<a><city><name>\xe5</name></city></a>", ", line 1, is not well-formed XML"),
    "no number": (CITIES.format('<city id="one"/>'), '"one" is not of its column'),
    "no number within": (CITIES.format("<city><pop>many</pop></city>"), "does not fit the declared schema"),
}


@pytest.mark.parametrize("case", MALFORMED_XML)
def test_malformed_xml(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """Spark would leave such rows out, or put NULL, without a word."""
    content, reason = MALFORMED_XML[case]
    drop = Drop(spark, tmp_path, "xml", CITY, options=ROW_TAG)
    drop.refused(drop.put("a.xml", content), reason)


def test_text(spark: SparkSession, tmp_path: Path) -> None:
    """A line a row, under a name of choice; lines of a compressed file too."""
    drop = Drop(spark, tmp_path, "text", "line STRING, day DATE", partition_by="day")
    drop.put("day=2024-05-01/a.log", "one\n\ntwo, 2\r\nthree")
    drop.put("day=2024-05-02/b.log.gz", gzip.compress("ä\n".encode()))
    assert [row[0] for row in drop.rows()] == ["", "one", "three", "two, 2", "ä"]
    drop.refused(drop.put("day=2024-05-02/c.log", b"ok\n\xff\n"), ", line 2, is not UTF-8")


def test_whole_texts(spark: SparkSession, tmp_path: Path) -> None:
    drop = Drop(spark, tmp_path, "text", "content STRING", options={"wholetext": "true"})
    drop.put("a.txt", "one\ntwo\n")
    assert drop.rows() == [("one\ntwo\n",)]
    drop.refused(drop.put("b.txt", ""), " is empty, and Spark would leave it out")


def test_binary(spark: SparkSession, tmp_path: Path) -> None:
    """A file a row, with the path that it was dropped at."""
    drop = Drop(
        spark, tmp_path, "binary", "content BINARY, path STRING, length BIGINT, kind STRING", partition_by="kind"
    )
    path = drop.put("kind=png/it's 50% [1].png", b"\x89PNG")
    assert [(bytes(row[0]), *row[1:]) for row in drop.rows()] == [(b"\x89PNG", str(path), 4, "png")]
    path.write_bytes(b"\x89PNG2")
    assert drop.rows()[0][2] == 5
    drop.refused(drop.put("kind=empty/none", b""), " is empty, and Spark would leave it out")


def table(**columns: Any) -> Any:
    return cast(Any, pa).table(columns)


def test_orc(spark: SparkSession, tmp_path: Path) -> None:
    """Narrower integers and nested types fit; ORC's reader would convert others, and put NULL where it cannot."""
    drop = Drop(spark, tmp_path, "orc", "id BIGINT, s STRING, a ARRAY<INT>, day INT", partition_by="day")
    path = drop.put("day=1/a.orc", b"")
    good = table(id=pa.array([1, None], pa.int32()), S=["x", None], a=pa.array([[1, None], None], pa.list_(pa.int32())))
    orc.write_table(good, path)
    assert drop.rows() == [(1, "x", [1, None], 1), (None, None, None, 1)]
    whole = path.read_bytes()
    for content, reason in (
        (b"", " is not a complete ORC file"),
        (whole[:-9], " is not a complete ORC file"),
        (table(id=[1], s=["x"]), " lacks the column a of the declared schema"),
        (table(id=["1"], s=["x"], a=[[1]]), " has a column id of type string, in the declared schema bigint"),
        (table(id=[1], s=["x"], a=[[1.5]]), " has a column a of type array<double>, in the declared schema array<int>"),
    ):
        path.write_bytes(content) if isinstance(content, bytes) else orc.write_table(content, path)
        drop.refused(path, reason)


def test_options_that_are_no_texts(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from a TypeError far from where an option of Python's own types was given."""
    drop = Drop(spark, tmp_path, "text", "t STRING", options={"wholetext": True})
    drop.put("a.txt", "x\ny\n")
    assert drop.rows() == [("x\ny\n",)]
    numbers: Any = {"rowsPerSecond": 5}
    assert Stream("rate", "value BIGINT", options=numbers).options == {"rowsPerSecond": "5"}
    topics: Any = {"kafka.bootstrap.servers": "h:1", "subscribe": 5}
    assert Stream("kafka", "_value STRING", options=topics).address == "stream of kafka 5"
    nothing: Any = {"lineSep": None}
    with pytest.raises(SourceError, match=r"the option `lineSep` cannot be of type NoneType\. Give a text or a number"):
        Files(str(drop.folder), "text", "t STRING", options=nothing)


@pytest.mark.parametrize(
    ("format", "schema", "sentence"),
    [
        ("text", "k INT, day INT", "a source of text has one column of type STRING"),
        ("text", "a STRING, b STRING, day INT", "a source of text has one column of type STRING"),
        ("binary", "content STRING, day INT", "binary files have no column content string. Choose among path STRING"),
        ("text", "a STRING, path STRING, day INT", "a source of text has one column of type STRING"),
        ("binary", "modificationTime TIMESTAMP, day INT", "binary files have no column modificationTime timestamp"),
    ],
)
def test_schemas_refused(spark: SparkSession, tmp_path: Path, format: Format, schema: str, sentence: str) -> None:
    drop = Drop(spark, tmp_path, format, schema, partition_by="day")
    drop.put("day=1/a", "x")
    with pytest.raises(SourceError, match=sentence):
        drop.warehouse.land("t")


MRQL = {
    "xml": ("_id INT, name STRING", CITIES.format(OSLO + ROME), "select c.name from c in source(xml, 'in/t.xml');"),
    "json": (
        "v VARIANT",
        '{"a": {"b": 1}}\n{"a": {"b": 2}}\n',
        "T = source(json, 't'); select toInt(c.a.b) from c in T;",
    ),
    "text": ("line STRING", f"{OSLO}\n{ROME}", "select c.@id from c in source(xml, 't');"),
}


@pytest.mark.parametrize("format", ["xml", "json", "text"])
def test_mrql(spark: SparkSession, tmp_path: Path, format: Format) -> None:
    """Columns are a record, a VARIANT is JSON, and a line is an element."""
    schema, content, query = MRQL[format]
    options = {"xml": ROW_TAG, "json": {"singleVariantColumn": "v"}}.get(format, {})
    drop = Drop(spark, tmp_path, format, schema, options=options)
    drop.put(f"t.{format}", content)
    drop.rows()
    view = drop.warehouse.view("v", Mrql(query))
    checked(view)
    expected = {"xml": ["Oslo", "Rome & Ostia"], "json": [1, 2], "text": ["1", "2"]}[format]
    assert sorted(row[0] for row in view.answer().collect()) == expected
