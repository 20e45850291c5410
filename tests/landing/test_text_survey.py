"""What would fill Spark's memory is refused by its size, without a Spark, and without reading it into memory here."""

from __future__ import annotations

import bz2
import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import Files
from deltafold.landing.preflight import text_survey
from deltafold.landing.preflight.inspection import check_content
from tests.landing.test_dropped import COLUMNS, drop

LIMIT = 1000


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can reach."""
    monkeypatch.setattr(text_survey, "LONGEST", LIMIT)
    monkeypatch.setattr(text_survey, "LONGEST_DOCUMENT", 4 * LIMIT)
    monkeypatch.setattr(text_survey, "SCAN_BYTES", 100)


def look(folder: Path, name: str, content: str | bytes, **options: str) -> None:
    form: Any = "json" if "json" in name else "csv"
    declared = Files(str(folder), form, "id int, s string", options=options)
    check_content("s", declared, COLUMNS, folder, drop(folder / name, content))


A, ROWS = "a" * 3 * LIMIT, "1,x\n" * LIMIT
VALUE = '"' + "a\n" * (LIMIT // 2 - 50) + '"'
TOO_LONG = {
    "JSON that never ends": ("a.json", A, {}, 1),
    "JSON that begins like a row": ("a.json", '{"id":1,"s":"' + A, {}, 1),
    "JSON after good lines": ("a.json", '{"id":1}\n' * 500 + A + "\n{}\n", {}, 501),
    "JSON between carriage returns": ("a.json", "{}\r{}\r" + A, {}, 3),
    "JSON with another end of line": ("a.json", "{}\n" * LIMIT, {"lineSep": "|"}, 1),
    "a header": ("a.csv", A, {}, 1),
    "a header of many columns": ("a.csv", "a," * LIMIT + "\n", {}, 1),
    "a row": ("a.csv", f"id,s\n{ROWS}1,{A}\n", {}, 1002),
    "a row of lines in other breaks": ("a.csv", "id,s\n1," + "a\r" * LIMIT, {}, 2),
    "a row after carriage returns": ("a.csv", "id,s\r1," + "a\n" * LIMIT, {}, 2),
    "a quoted value": ("a.csv", 'id,s\n1,"' + "a\n" * LIMIT, {}, 2),
    "a quoted value that ends": ("a.csv", 'id,s\n1,x\n2,"' + "a\n" * LIMIT + '"\n3,y\n', {}, 3),
    "many values": ("a.csv", f"id,s\n1,{','.join([VALUE] * 4)}\n", {}, 2),
    "many values after a quote that is none": ("a.csv", f'id,s\n1,x",{",".join([VALUE] * 4)}\n', {}, 2),
    "many values after a doubtful quote": ("a.csv", f'id,s\n1,"x"y,{",".join([VALUE] * 4)}\n', {}, 2),
    "many values in other quotes": ("a.csv", f"id|s\n1||{'||'.join([VALUE.replace(chr(34), chr(39))] * 4)}\n",
                                    {"quote": "'", "sep": "||"}, 2),
    "quotes with another escape": ("a.csv", 'id,s\n1,"' + 'a\\"\n' * LIMIT + '"\n', {"escape": "\\"}, 2),
    "rows of one line": ("a.csv", f'id,s\n1,"{A}\n', {"multiLine": "false"}, 2),
    "another encoding": ("a.csv", f"id,s\n{'ਅ' * 3 * LIMIT}".encode("utf-16"), {"encoding": "UTF-16"}, 2),
    "an encoding that only Java knows": ("a.csv", A, {"encoding": "x-IBM1006"}, 1),
}  # fmt: skip


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("case", TOO_LONG)
def test_what_has_no_end_in_sight_is_refused(tmp_path: Path, case: str) -> None:
    """Protects from one file that ends the driver, and with it every refresh."""
    name, content, options, line = TOO_LONG[case]
    with pytest.raises(SourceError) as caught:
        look(tmp_path, name, content, **cast("dict[str, str]", options))
    said = str(caught.value)
    assert f"source s was not landed: {tmp_path}/{name}, line {line}, " in said
    assert "1,000 characters" in said and "Correct the file" in said


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.json", '{"id":1}\n' * LIMIT, {}), ("a.json", '{"id":1}\r\n' * LIMIT, {}),
        ("a.json", "{}|" * LIMIT, {"lineSep": "|"}),
        ("a.csv", ROWS, {}), ("a.csv", ROWS.replace("\n", "\r\n"), {}), ("a.csv", ROWS.replace("\n", "\r"), {}),
        ("a.csv", '1,"a\nb"\n' * LIMIT, {}), ("a.csv", '1,5" pipe\n' * LIMIT, {}), ("a.csv", f"1,{VALUE}\n" * 5, {}),
        ("a.csv", f"1,{A}\n", {"maxCharsPerColumn": "9000"}), ("a.csv", f"1,{A}\n", {"maxCharsPerColumn": "-1"}),
        ("a.csv", ROWS.encode("utf-16"), {"encoding": "UTF-16"}),
        ("a.csv", ROWS.encode("latin-1"), {"charset": "latin1"}),
        ("a.json", "[" + "{}\n," * 500, {"multiLine": "true", "lineSep": "|"}),
    ],
)  # fmt: skip
def test_what_is_long_but_has_short_rows_is_taken(
    tmp_path: Path, name: str, content: str | bytes, options: dict[str, str]
) -> None:
    """Protects from refusing large files for their size."""
    look(tmp_path, name, content, **options)


@pytest.mark.usefixtures("short")
def test_json_over_several_lines_is_one_document(tmp_path: Path) -> None:
    """Protects from an array whose rows Spark makes all at once."""
    with pytest.raises(SourceError, match=r"a\.json is a JSON document of more than 4,000 characters, which"):
        look(tmp_path, "a.json", "[" + '{"id":1},\n' * LIMIT, multiLine="true")


def test_a_terabyte_is_refused_at_once(tmp_path: Path) -> None:
    """Protects from waiting for the end of a line that costs nothing to drop."""
    for name in ("a.json", "a.csv"):
        with drop(tmp_path / name).open("r+b") as file:
            file.truncate(1 << 40)
        with pytest.raises(SourceError, match=r"more than 64,000,000 characters"):
            check_content("s", Files(str(tmp_path), cast(Any, name[2:]), "id int"), COLUMNS, tmp_path, tmp_path / name)


def test_a_quote_that_is_never_closed_is_found_however_much_follows(tmp_path: Path) -> None:
    """Protects from all rows after it in one value, where these are more than Python's reader takes by default."""
    with pytest.raises(SourceError, match="line 3, begins a row with a quote that is never closed"):
        look(tmp_path, "a.csv", 'id,s\n1,"a"b\n2,"abc\n' + "3,x\n" * 50_000)


def hadoop(pack: Callable[[bytes], bytes], part: int = 1 << 30) -> Callable[[bytes], bytes]:
    """Hadoop's blocks: two blocks, each in parts."""

    def packed(text: bytes) -> bytes:
        half = len(text) // 2
        blocks = [text[:half], text[half:]]
        return b"".join(
            struct.pack(">I", len(block))
            + b"".join(
                struct.pack(">I", len(done)) + done
                for done in (pack(block[at : at + part]) for at in range(0, len(block), part))
            )
            for block in blocks
        )

    return packed


def arrow(codec: str) -> Callable[[bytes], bytes]:
    return lambda text: cast(Any, pa).compress(text, codec=codec, asbytes=True)


def doubled(pack: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Two streams after each other, which are read as one."""
    return lambda text: pack(text[:7]) + pack(text[7:])


PACK: dict[str, Callable[[bytes], bytes]] = {
    "a.csv.gz": doubled(gzip.compress),
    "a.csv.GZ": gzip.compress,
    "a.csv.bz2": doubled(bz2.compress),
    "a.csv.deflate": doubled(zlib.compress),
    "a.csv.zst": doubled(arrow("zstd")),
    "a.csv.lz4": hadoop(arrow("lz4_raw")),
    "b.csv.lz4": hadoop(arrow("lz4_raw"), 1000),
    "a.csv.snappy": hadoop(arrow("snappy"), 1000),
}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", PACK)
def test_a_compressed_file_is_looked_into(tmp_path: Path, name: str) -> None:
    """Protects from an endless line in a few bytes, and from files that Spark reads in part or as nothing."""
    good = b"id,s\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(1500))
    packed = PACK[name](good)
    look(tmp_path, name, packed)
    with pytest.raises(SourceError, match="line 2, begins a row of more than 1,000 characters"):
        look(tmp_path, name, PACK[name](b"id,s\n1," + b"a" * 100_000))
    with pytest.raises(SourceError, match="line 1502, is not UTF-8"):
        look(tmp_path, name, PACK[name](good + b"\xff"))
    ending = Path(name).suffix
    for damaged in (packed[:-3], packed[: len(packed) // 2], b"\x04\x22\x4d\x18 no such thing", good):
        with pytest.raises(
            SourceError, match=rf"{name} is not a complete {ending} file .*\(.+\). Write the file again"
        ):
            look(tmp_path, name, damaged)
    look(tmp_path, name, b"")


def test_what_spark_does_not_decompress_is_text(tmp_path: Path) -> None:
    """Protects from trusting a file for its name."""
    with pytest.raises(SourceError, match="is not UTF-8"):
        look(tmp_path, "a.csv.xz", b"\xfd7zXZ\x00")
