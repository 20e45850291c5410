"""A stream is landed exactly once: each record is in the landed table or in the quarantine, after any crash."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import FILE_FORMATS
from deltafold.api import Files, Stream, Warehouse
from deltafold.lake.protocol import Lake
from deltafold.spark.jvm.jars import add_jars, avro_package
from tests.crash.points import Killed, Stop, watched
from tests.night import every, night

Rows = Counter[tuple[object, ...]]


class Clicks:
    """A folder to which files are added, and the warehouse that lands them as a stream."""

    def __init__(self, spark: SparkSession, folder: Path, **declared: Any) -> None:
        self.spark, self.folder = spark, folder
        self.declared: dict[str, Any] = {"format": "json", "schema": "id INT, page STRING"} | declared
        (folder / "in").mkdir(parents=True, exist_ok=True)

    @property
    def warehouse(self) -> Warehouse:
        made = Warehouse(self.spark, self.folder / "warehouse")
        given = {"path": str(self.folder / "in")} if self.declared["format"] in FILE_FORMATS else {}
        made.source("clicks", Stream(**given, **self.declared))
        return made

    def put(self, name: str, *lines: str) -> None:
        """Move a file to the folder."""
        scratch = self.folder / Path(name).name
        scratch.write_text("".join(f"{line}\n" for line in lines))
        scratch.rename(self.folder / "in" / name)

    def click(self, *numbers: int) -> None:
        """Add one file of clicks with these numbers."""
        self.put(f"{numbers[0]}.json", *(json.dumps({"id": number, "page": "p"}) for number in numbers))

    def landed(self) -> Rows:
        table = self.warehouse.tables()["clicks"]
        return Rows(tuple(row) for row in table.at(table.version() or 0).collect())

    def numbers(self) -> list[int]:
        return sorted(row[0] for row in self.landed().elements())  # type: ignore[type-var]

    def quarantined(self) -> list[tuple[str, str]]:
        rows = self.warehouse.quarantine("clicks").collect()
        return sorted((row.row, row.reason) for row in rows)


def test_each_file_is_landed_once(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from records that are landed twice or never, and from a view that does not follow a stream."""
    clicks = Clicks(spark, tmp_path)
    first = clicks.warehouse.land("clicks")
    assert (first.rows, first.stream, clicks.numbers()) == (0, True, [])
    clicks.click(1, 2)
    clicks.put("blank.json", "", " \t", '{"id":3}')
    landing = clicks.warehouse.land("clicks")
    assert (landing.landed, landing.rows, landing.quarantined) == (("*",), 3, {})
    again = clicks.warehouse.land("clicks")
    assert (again.landed, again.rows, again.version) == ((), 0, landing.version)
    warehouse = clicks.warehouse
    view = warehouse.view("pages", "select page, count(*) n from clicks group by page")
    view.refresh()
    clicks.click(4)
    (tmp_path / "in" / "1.json").unlink()  # a stream keeps what it has taken
    warehouse.land("clicks")
    view.refresh()
    assert view.verify().ok
    assert clicks.numbers() == [1, 2, 3, 4]
    with pytest.raises(SourceError, match="a stream has no partitions"):
        warehouse.land("clicks", ["*"])


@night
@pytest.mark.parametrize("format", every(3, ["avro", "orc", "parquet"]))
def test_files_that_are_not_text(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """Protects from a format that is offered and cannot be streamed; a field that a file lacks is NULL."""
    clicks = Clicks(spark, tmp_path, format=format, schema="id INT, page STRING, more INT")
    clicks.warehouse.land("clicks")
    if format == "avro":
        add_jars(spark, avro_package())
    for number in (1, 2):
        written = tmp_path / f"written{number}"
        rows = spark.createDataFrame([(number, "p"), (None, None)], "id INT, page STRING")
        rows.coalesce(1).write.format(format).save(str(written))
        (file,) = written.glob(f"part-*.{format}")
        file.rename(tmp_path / "in" / f"{number}.{format}")
        assert clicks.warehouse.land("clicks").rows == 2
    assert clicks.landed() == {(1, "p", None): 1, (2, "p", None): 1, (None, None, None): 2}


BAD = {
    '{"id":"x"}': '"x" in id is not a valid INT',
    '{"id":1} {"id":2}': "text follows its JSON value",
    '[{"id":1},{"id":2}]': "it is not a record",
    '{"id":1': "it is not a record",
    '{"id":1},': "text follows its JSON value",
    "nothing": "it is not a record",
}


@night
def test_malformed_records(spark: SparkSession, in_memory: Lake, tmp_path: Path) -> None:
    """Protects from values that become NULL, from the second object of a line, and from good records lost with bad."""
    strict = Clicks(spark, tmp_path)
    strict.click(1)
    strict.put("bad.json", '{"id":2}', *BAD)
    (tmp_path / "in" / "latin.json").write_bytes(b'{"id":3,"page":"\xe9"}\n')
    message = r"7 records do not fit the declared schema, the first one in .*\.json: .*Declare `malformed: quarantine`"
    for _ in range(2):
        with pytest.raises(SourceError, match=message) as found:
            strict.warehouse.land("clicks")
        assert "id" not in found.value.logged
    lenient = Clicks(spark, tmp_path, malformed="quarantine", quarantine_limit=8)
    landing = lenient.warehouse.land("clicks")
    assert (landing.rows, landing.left_out, landing.quarantined) == (2, 7, {"*": 7})
    assert lenient.numbers() == [1, 2]
    latin = ('{"id":3,"page":"\ufffd"}', "it is not UTF-8")
    assert lenient.quarantined() == sorted([*BAD.items(), latin])
    lenient.put("more.json", "a", "b")
    with pytest.raises(SourceError, match=r"2 records do not fit .* more than the 8 rows that its quarantine may have"):
        lenient.warehouse.land("clicks")
    lenient.declared["quarantine_limit"] = 9
    assert lenient.warehouse.land("clicks").left_out == 2
    assert lenient.warehouse.quarantined() == {"clicks": 9}


@night
def test_csv_and_text(spark: SparkSession, in_memory: Lake, tmp_path: Path) -> None:
    """Protects from headers that are landed, from rows of other widths, and from lines that are lost."""
    rows = Clicks(spark, tmp_path / "csv", format="csv", malformed="quarantine", options={"maxFilesPerTrigger": "1"})
    rows.put("a.csv", "id,page", "1,x", "q,y", "2,z,3", '4,"two', 'lines"')
    rows.put("b.csv", "id,page", "5,")
    landing = rows.warehouse.land("clicks")
    assert (landing.rows, landing.left_out) == (3, 2)
    assert rows.landed() == Rows([(1, "x"), (4, "two\nlines"), (5, None)])
    other = "it has another number of values than the declared schema has columns"
    assert rows.quarantined() == [("2,z,3", other), ("q,y", "q in id is not a valid INT")]
    objects = Clicks(spark, tmp_path / "json")
    (tmp_path / "json" / "in" / "page=x").mkdir()
    objects.put("page=x/a.json", '{"id":1}')
    with pytest.raises(SourceError, match=r"in a folder that names a column, as Files\(…, partition_by=…\) reads it"):
        objects.warehouse.land("clicks")
    lines = Clicks(spark, tmp_path / "text", format="text", schema="line STRING")
    lines.put("a.txt", "one", "", " two ")
    lines.warehouse.land("clicks")
    assert lines.landed() == Rows([("one",), ("",), (" two ",)])
    lines.declared["schema"] = "id INT"
    with pytest.raises(SourceError, match="a stream of text has one column of type STRING"):
        lines.warehouse.land("clicks")


@night
def test_any_stream_of_sparks(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from a source that is landed with other columns than it has, or cannot be named."""
    ticks = Clicks(spark, tmp_path, format="rate-micro-batch", schema="value BIGINT", options={"rowsPerBatch": "5"})
    ticks.warehouse.land("clicks")
    ticks.warehouse.land("clicks")
    found = ticks.numbers()
    assert found == list(range(len(found)))
    assert len(found) >= 5
    ticks.declared["schema"] = "value INT"
    shutil.rmtree(tmp_path / "warehouse")
    with pytest.raises(SourceError, match=r"no column value of type int\. .* value bigint"):
        ticks.warehouse.land("clicks")
    ticks.declared["format"] = "nosuch"
    with pytest.raises(SourceError, match=r"could not read its stream: .*nosuch"):
        ticks.warehouse.land("clicks")


@night
def test_a_replay_replaces_all_rows(spark: SparkSession, in_memory: Lake, tmp_path: Path) -> None:
    """Protects from rows that stay after their file was corrected, and from old quarantine."""
    clicks = Clicks(spark, tmp_path, malformed="quarantine")
    clicks.click(1, 2)
    clicks.put("bad.json", "bad")
    clicks.warehouse.land("clicks")
    view = clicks.warehouse.view("n", "select count(*) n, sum(id) s from clicks")
    view.refresh()
    (tmp_path / "in" / "bad.json").write_text('{"id":9}\n')
    (tmp_path / "in" / "1.json").unlink()
    clicks.click(3)
    with pytest.raises(SourceError, match=r"has 2 records now, and 3 were landed, so at least 1 would be lost"):
        clicks.warehouse.replay("clicks")
    assert clicks.numbers() == [1, 2]
    assert [path.name for path in (tmp_path / "warehouse").rglob("incoming-*")] == []
    clicks.warehouse.land("clicks")
    assert clicks.numbers() == [1, 2, 3]
    replayed = clicks.warehouse.replay("clicks", allow_loss=True)
    assert (replayed.rows, replayed.quarantined, clicks.numbers()) == (2, {}, [3, 9])
    assert view.refresh().verdict == "applied"
    assert view.verify().ok
    clicks.click(4)
    assert clicks.warehouse.land("clicks").rows == 1
    assert clicks.numbers() == [3, 4, 9]
    clicks.declared["schema"] = "id BIGINT"
    with pytest.raises(SourceError, match=r"declared with another schema .* Replay the source"):
        clicks.warehouse.land("clicks")
    clicks.warehouse.replay("clicks")
    assert clicks.landed() == Rows([(3,), (4,), (9,)])
    shutil.rmtree(tmp_path / "in")
    (tmp_path / "in").mkdir()
    assert clicks.warehouse.replay("clicks", allow_loss=True).rows == 0
    assert clicks.landed() == Rows()


@night
def test_a_lost_position_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from rows that are landed twice, or never, since table and position do not belong together."""
    clicks = Clicks(spark, tmp_path)
    landed = tmp_path / "warehouse" / "landed" / "clicks"

    def refused(match: str) -> None:
        with pytest.raises(SourceError, match=f"{match}.* Replay the source"):
            clicks.warehouse.land("clicks")
        clicks.warehouse.replay("clicks")
        assert clicks.numbers() == [1, 2]

    clicks.click(1, 2)
    clicks.warehouse.land("clicks")
    shutil.rmtree(landed / "stream-0" / "checkpoint")
    refused("its position in the stream, .*, is gone")
    shutil.rmtree(landed)
    refused("its position in the stream, .*, is gone")
    shutil.rmtree(tmp_path / "warehouse" / "sources")
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    refused("its landed table is older than its position in the stream, or is gone")
    (tmp_path / "in").rename(tmp_path / "other")
    (tmp_path / "in").symlink_to(tmp_path / "other")
    warehouse = Warehouse(spark, tmp_path / "warehouse")
    warehouse.source("clicks", Stream("json", "id INT, page STRING", path=str(tmp_path / "other")))
    with pytest.raises(SourceError, match=r"its position is that of another stream \(json, .*/in\)"):
        warehouse.land("clicks")


def test_a_source_of_files_is_no_stream(spark: SparkSession, in_memory: Lake, tmp_path: Path) -> None:
    """Protects from the rows of another declaration under a stream's."""
    clicks = Clicks(spark, tmp_path)
    clicks.click(1)
    warehouse = Warehouse(spark, tmp_path / "warehouse")
    warehouse.source("clicks", Files(str(tmp_path / "in"), "json", "id INT, page STRING"))
    warehouse.land("clicks")
    for work in ("land", "replay"):
        with pytest.raises(
            SourceError, match=r"its landed table was landed from files. Declare the stream under another"
        ):
            getattr(clicks.warehouse, work)("clicks")
    other = Clicks(spark, tmp_path / "other")
    other.warehouse.land("clicks")
    warehouse = Warehouse(spark, tmp_path / "other" / "warehouse")
    warehouse.source("clicks", Files(str(tmp_path / "in"), "json", "id INT, page STRING"))
    with pytest.raises(
        SourceError, match=r"its landed table was landed from a stream. Declare the files under another"
    ):
        warehouse.land("clicks")


# a landing that is in the quarantine and not in the landed table, and a replay whose mark is missing
KILLS: dict[str, list[Stop]] = {
    "land": [("after DirectCommit.finish", 1)],
    "replay": [("after DeltaTable.replace_where", 1)],
}


@pytest.mark.parametrize("work", ["land", pytest.param("replay", marks=night)])
def test_a_landing_that_is_killed(spark: SparkSession, tmp_path: Path, long: bool, work: str) -> None:
    """Protects from records that a crash loses or doubles, at any write of a landing or a replay."""
    clicks = Clicks(spark, tmp_path, malformed="quarantine")
    clicks.put("0.json", '{"id":0}', "bad 0")
    clicks.warehouse.land("clicks")
    expected = [0]
    stops: Iterable[Stop] = count() if long else KILLS[work]
    for number, stop in enumerate(stops, 1):
        clicks.put(f"{number}.json", f'{{"id":{number}}}', f"bad {number}")
        expected.append(number)
        try:
            with watched(stop) as run:
                getattr(clicks.warehouse, work)("clicks")
            assert long and len(run.passed) == stop
            break
        except Killed:
            pass
        clicks.put(f"{number}-later.json", f'{{"id":{-number}}}')
        expected.append(-number)
        clicks.warehouse.land("clicks")
        assert clicks.numbers() == sorted(expected), run.passed[-1]
        assert len(clicks.quarantined()) == number + 1, run.passed[-1]
