"""What lies in a folder, and what is wrong with it, without a Spark."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql.types import IntegerType, StructField

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import Files
from deltafold.landing.folder import UNPARTITIONED, content_digest, explain_read_errors, file_digest, partitions_in
from deltafold.landing.malformed import reason_of
from deltafold.landing.preflight.inspection import check_content

COLUMNS = [StructField("id", IntegerType())]


def drop(file: Path, content: str | bytes = "id\n1\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def files(
    root: Path, format: Literal["csv", "json", "parquet"] = "csv", by: str | None = "day", **options: str
) -> Files:
    return Files(str(root), format, "id int, day string", partition_by=by, options=options)


def test_partitions_are_folders_with_data(tmp_path: Path) -> None:
    """Protects from partitions that are overlooked, and from taking for data what other tools leave behind."""
    drop(tmp_path / "day=1" / "b.csv")
    drop(tmp_path / "day=1" / "a.csv")
    drop(tmp_path / "day=1" / "_SUCCESS")
    drop(tmp_path / "day=1" / ".a.csv.crc")
    drop(tmp_path / "day=1" / "c.csv._COPYING_")
    drop(tmp_path / "day=1" / "_temporary" / "d.csv")
    drop(tmp_path / "day=2" / "_SUCCESS")
    drop(tmp_path / "_log" / "e.csv")
    (tmp_path / "day=3").mkdir()
    found = partitions_in("s", files(tmp_path))
    assert list(found) == ["1"]
    assert [path.name for path in found["1"].paths] == ["a.csv", "b.csv"]


def test_a_folder_without_partitions_is_one(tmp_path: Path) -> None:
    """Protects from treating an unpartitioned source as an empty one."""
    drop(tmp_path / "a.csv")
    assert list(partitions_in("s", files(tmp_path, by=None))) == [UNPARTITIONED]


@pytest.mark.parametrize(
    ("folder", "key"),
    [("a b", "a b"), ("%27", "'"), ("50%", "50%"), ("x=y", "x=y"), ("S%C3%A3o", "São"), ("São", "São"), ("%2F", "/")],
)
def test_keys_are_what_was_meant(tmp_path: Path, folder: str, key: str) -> None:
    """Protects from keys that other tools write percent-encoded."""
    drop(tmp_path / f"day={folder}" / "a.csv")
    assert list(partitions_in("s", files(tmp_path))) == [key]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["day=a b/f.csv", "day=a%20b/f.csv"], "are the same partition. Keep one"),
        (["day=é/f.csv", "day=%C3%A9/f.csv"], "are the same partition. Keep one"),
        (["day=Ã©/f.csv", "day=%C3%A9/f.csv"], "are the same partition. Keep one"),
        (["day=/f.csv"], "empty value. For NULL name it day=__HIVE_DEFAULT_PARTITION__"),
        (["Day=1/f.csv"], "Day=1 is not a partition, and would not be read"),
        (["day=1/f.csv", "stray.csv"], "stray.csv is not a partition, and would not be read"),
        (["day=1/hour=2/f.csv"], "hour=2 is a folder among data files, and would not be read"),
        (["day=%FF/f.csv"], "is not UTF-8. Rename it"),
    ],
)
def test_what_would_not_be_read_is_an_error(tmp_path: Path, names: list[str], says: str) -> None:
    """Protects from rows that somebody dropped and nobody ever sees."""
    for name in names:
        drop(tmp_path / name)
    with pytest.raises(SourceError, match=says):
        partitions_in("s", files(tmp_path))


@pytest.mark.parametrize("name", [b"day=1/\xff.csv", b"day=\xff/f.csv"])
def test_names_that_are_no_text_are_an_error(tmp_path: Path, name: bytes) -> None:
    """Protects from names that Python can carry and Java cannot."""
    drop(Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)))
    with pytest.raises(SourceError, match=r"udcff.*is not UTF-8. Rename it"):
        partitions_in("s", files(tmp_path))


def test_a_name_cannot_forge_a_line_of_a_message(tmp_path: Path) -> None:
    """Protects whoever reads a terminal or a log from sentences that an input file's name says."""
    drop(tmp_path / "stray\nfix: all is well\x1b[2K.csv")
    with pytest.raises(SourceError, match=r"stray\\nfix: all is well\\x1b\[2K\.csv is not a partition") as caught:
        partitions_in("s", files(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    """Protects from taking a folder that is not mounted for one whose partitions were all removed."""
    with pytest.raises(SourceError, match=r"there is no folder .*gone. Create it"):
        partitions_in("s", files(tmp_path / "gone"))


def test_a_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    """Protects from landing again what was only copied or touched, and from missing what changed."""
    one, two = drop(tmp_path / "1" / "a.csv", "x"), drop(tmp_path / "2" / "a.csv", "x")
    other, renamed = drop(tmp_path / "3" / "a.csv", "y"), drop(tmp_path / "4" / "b.csv", "x")
    os.utime(two, (1, 1))
    groups = [one], [other], [renamed], [], [one, renamed]

    def digest(*paths: Path) -> str:
        return content_digest({path.name: file_digest("s", tmp_path, path) for path in paths})

    assert digest(one) == digest(two)
    assert len({digest(*group) for group in groups}) == 5


def test_a_file_that_goes_away_is_named(tmp_path: Path) -> None:
    """Protects from a traceback where a file was moved while it was being looked at."""
    path = drop(tmp_path / "day=1" / "a.csv")
    [partition] = partitions_in("s", files(tmp_path)).values()
    shutil.rmtree(path.parent)
    with pytest.raises(SourceError, match=r"a\.csv disappeared meanwhile. Land again"), explain_read_errors("s"):
        file_digest("s", tmp_path, *partition.paths)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,s\n1,é\n".encode("latin-1"), ", line 2, is not UTF-8"),
        (b"id,s\n" + b"1,a\n" * 400_000 + b"1,\xc3\n", ", line 400002, is not UTF-8"),
        (b"id,s\n1,\xc3", ", line 2, is not UTF-8"),
        ('id,s\n1,"abc\n2,x\n3,y\n', ", line 2, begins a row with a quote that is never closed"),
    ],
)
def test_csv_that_spark_would_misread_is_an_error(tmp_path: Path, text: str | bytes, says: str) -> None:
    """Protects from � in place of letters, and from the rest of a file read as one value."""
    with pytest.raises(SourceError, match=says):
        check_content("s", files(tmp_path), COLUMNS, tmp_path, drop(tmp_path / "a.csv", text))


def test_the_fix_of_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """Protects from a dead end: another encoding can be declared, and a copy that was cut off is not to be edited."""
    path = drop(tmp_path / "a.csv", "id,s\n1,é\n".encode("latin-1"))
    with pytest.raises(SourceError) as caught:
        check_content("s", files(tmp_path), COLUMNS, tmp_path, path)
    said = str(caught.value)
    assert f"source s was not landed: {path}, line 2, is not UTF-8" in said
    assert "Save it as UTF-8" in said and "`options: {encoding: ISO-8859-1}`" in said
    whole = gzip.compress(b"id,s\n" + os.urandom(1000))
    path = drop(tmp_path / "b.csv.gz", whole[:-20])
    with pytest.raises(SourceError, match=r"b\.csv\.gz is not a complete \.gz .*\. Write the file again completely"):
        check_content("s", files(tmp_path, encoding="latin1"), COLUMNS, tmp_path, path)


@pytest.mark.parametrize(
    "text", ["", "id,s\n", 'id,s\n1,5" pipe\n', 'id,s\n1,"a\nb"\n', 'id,s\n1,"a ""b"""\n', "é\r\n"]
)
def test_csv_that_spark_reads_is_none(tmp_path: Path, text: str) -> None:
    """Protects from refusing files that are all right."""
    check_content("s", files(tmp_path), COLUMNS, tmp_path, drop(tmp_path / "a.csv", text))


def test_other_encodings_and_quotes_are_trusted(tmp_path: Path) -> None:
    """Protects from refusing what the source's options explain."""
    check_content("s", files(tmp_path, encoding="latin1"), COLUMNS, tmp_path, drop(tmp_path / "a.csv", b"\xe9"))
    check_content("s", files(tmp_path, quote="'"), COLUMNS, tmp_path, drop(tmp_path / "b.csv", 'id\n"\n'))


@pytest.mark.parametrize("text", ['{"id":1} {"id":2}\n', '{"id":0}\n{"id":"}{"}{"id":2}\n'])
def test_two_objects_in_a_line_are_an_error(tmp_path: Path, text: str) -> None:
    """Protects from rows that Spark leaves out without a word."""
    with pytest.raises(SourceError, match=r", line \d, has more than one JSON object"):
        check_content("s", files(tmp_path, "json"), COLUMNS, tmp_path, drop(tmp_path / "a.json", text))


@pytest.mark.parametrize("text", ['{"id":"} {"}\n', '[{"id":1},{"id":2}]\n', "", '{"id":{}}\n\n{"id":{}}\n', "} {\n"])
def test_other_json_is_none(tmp_path: Path, text: str) -> None:
    """Protects from refusing braces in texts, and from explaining what Spark explains itself."""
    check_content("s", files(tmp_path, "json"), COLUMNS, tmp_path, drop(tmp_path / "a.json", text))


@pytest.mark.parametrize("message", ["field name '' and the value  of the JSON token" * 40_000, "x" * 10_000_000])
def test_a_message_of_any_length_is_read_at_once(message: str) -> None:
    """Protects from a value that keeps the search for a reason busy for hours, and from sentences of megabytes."""
    assert len(reason_of([message])) <= 501
