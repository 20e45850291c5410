"""What a declaration may say, and the one sentence for each thing that it may not."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

from deltafold.algebra.sources import Expire, Files, ForeignKey, Stream
from deltafold.pipelines import catalogue
from deltafold.pipelines.declaration import parsing
from deltafold.pipelines.declaration.declaration import Declaration, Partitions
from deltafold.pipelines.declaration.parsing import DeclarationError
from tests.pipelines.declared import MINIMAL, PARTITIONED


def read(folder: Path, text: str, **environment: str) -> Declaration:
    path = folder / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    return parsing.read_declaration(path, environment)


def complaint(folder: Path, text: str, **environment: str) -> str:
    """What is said about a declaration, without the file's name, which every line starts with."""
    with pytest.raises(DeclarationError) as caught:
        read(folder, text, **environment)
    said = str(caught.value)
    assert all(line.startswith(f"{folder}/pipeline.yaml") for line in said.splitlines())
    return said.replace(f"{folder}/pipeline.yaml", "")


def assert_says(said: str, expected: str) -> None:
    """Check that each line has the parts of the expected one, in order; … stands for any words between them."""
    lines, patterns = said.splitlines(), expected.splitlines()
    assert len(lines) == len(patterns), said
    for line, pattern in zip(lines, patterns, strict=True):
        parts = [re.escape(part) for part in pattern.split("…")]
        assert re.fullmatch(f"{'.*'.join(parts)}.*", line), f"{line!r} has not all of {pattern!r}"


def test_the_smallest_declaration_has_the_documented_defaults(tmp_path: Path) -> None:
    declaration = read(tmp_path, MINIMAL)
    assert (declaration.policy, declaration.publish, declaration.schedule) == ("incremental", "auto", None)
    assert declaration.on_change == "refuse"
    assert declaration.partitioning.kind == "dynamic"
    assert declaration.sources["sales"].invariant is False


def test_a_full_declaration(tmp_path: Path) -> None:
    text = f"""\
description: Sales
{PARTITIONED}      options: {{header: false, maxColumns: 30}}
  shops: {{delta: "s3a://lake/shops", invariant: true}}
partitions: {{kind: daily, start: 2013-01-01, end: 2013-12-31}}
policy: auto
publish: table
on_change: rebuild
schedule: "*/5 6-18 * * mon-fri"
warehouse: ../lake
spark: {{memory: 2g, master: "local[2]", settings: {{spark.sql.shuffle.partitions: 4}}}}
"""
    declaration = read(tmp_path, text)
    files = declaration.sources["sales"].files
    assert files is not None and files.options == {"header": "false", "maxColumns": "30"}
    assert files.path == f"{tmp_path}/data"
    assert declaration.sources["shops"].delta == "s3a://lake/shops"
    assert declaration.partitioning == Partitions(
        kind="daily", start=datetime.date(2013, 1, 1), end=datetime.date(2013, 12, 31)
    )
    assert (declaration.warehouse, declaration.on_change) == (f"{tmp_path.parent}/lake", "rebuild")
    assert declaration.spark.settings == {"spark.sql.shuffle.partitions": "4"}


@pytest.mark.parametrize("address", ["s3a://lake/state", "hdfs://host:8020/state/"])
def test_a_warehouse_may_be_in_a_store(tmp_path: Path, address: str) -> None:
    assert read(tmp_path, MINIMAL + f"warehouse: {address}\n").warehouse == address.rstrip("/")


def test_what_is_done_with_malformed_rows_reaches_the_warehouse(tmp_path: Path) -> None:
    text = MINIMAL + "      malformed: quarantine\n      quarantine_limit: 7\n"
    files = catalogue.declare(read(tmp_path, text).sources["sales"])
    assert isinstance(files, Files)
    assert (files.malformed, files.quarantine_limit) == ("quarantine", 7)


def test_expire_reaches_the_warehouse(tmp_path: Path) -> None:
    files = catalogue.declare(
        read(tmp_path, MINIMAL + "      expire: {column: day, after: 2 weeks}\n").sources["sales"]
    )
    assert isinstance(files, Files)
    assert files.expire == Expire("day", "2 weeks")


STREAM = """\
sources:
  clicks:
    stream:
      format: json
      path: clicks
      schema: {id: INT, page: STRING}
      options: {maxFilesPerTrigger: 10}
"""


def test_a_stream_reaches_the_warehouse(tmp_path: Path) -> None:
    text = (
        STREAM + "      malformed: quarantine\n      quarantine_limit: 7\n    primary_key: id\n    append_only: true\n"
    )
    stream = catalogue.declare(read(tmp_path, text).sources["clicks"])
    options = {"maxFilesPerTrigger": "10"}
    keys = {"primary_key": ("id",), "append_only": True}
    path = f"{tmp_path}/clicks"
    assert stream == Stream(
        "json",
        "`id` INT, `page` STRING",
        path=path,
        options=options,
        **keys,
        malformed="quarantine",
        quarantine_limit=7,
    )
    uri = catalogue.declare(read(tmp_path, STREAM.replace("path: clicks", "path: s3a://lake/in")).sources["clicks"])
    assert uri.address == "s3a://lake/in"


def test_declared_keys_reach_the_warehouse(tmp_path: Path) -> None:
    """One column may stand alone; a foreign key may refer to its own source."""
    text = MINIMAL + "    primary_key: id\n    foreign_keys: [{columns: [id], source: sales}]\n    append_only: true\n"
    source = read(tmp_path, text).sources["sales"]
    key = ForeignKey(("id",), "sales")
    assert (source.primary_key, source.append_only) == (("id",), True)
    files = catalogue.declare(source)
    assert (files.primary_key, files.foreign_keys, files.append_only) == (("id",), (key,), True)


def test_declared_monoids(tmp_path: Path) -> None:
    """Numbers of YAML are SQL too."""
    text = MINIMAL + "monoids:\n  total: {type: INT, zero: 0, plus: a + b, inverse: -a}\n"
    part = read(tmp_path, text).monoids["total"]
    assert part.model_dump(exclude_none=True) == {"type": "INT", "zero": "0", "plus": "a + b", "inverse": "-a"}


def test_a_schema_may_be_a_mapping(tmp_path: Path) -> None:
    text = MINIMAL.replace("id INT, day DATE", "{id: INT, the day: DATE, m: 'MAP<STRING, INT>', 'q`q': STRING}")
    files = read(tmp_path, text).sources["sales"].files
    assert files is not None
    assert files.schema_ddl == "`id` INT, `the day` DATE, `m` MAP<STRING, INT>, `q``q` STRING"


@pytest.mark.parametrize(
    ("path", "environment", "expected"),
    [
        ("data/in", {}, "{folder}/data/in"),
        ("../in", {}, "{parent}/in"),
        ("/srv/in", {}, "/srv/in"),
        ("${ROOT}/in", {"ROOT": "/srv"}, "/srv/in"),
        ("${ROOT:-../..}/in", {"ROOT": "/srv"}, "/srv/in"),
        ("${ROOT:-here}/in", {}, "{folder}/here/in"),
        ("file:///srv/in/", {}, "/srv/in"),
        ("${ROOT}/in", {"ROOT": "file:/srv"}, "/srv/in"),
        ("it's; DROP TABLE x --", {}, "{folder}/it's; DROP TABLE x --"),
    ],
)
def test_paths_start_at_the_pipelines_folder(
    tmp_path: Path, path: str, environment: dict[str, str], expected: str
) -> None:
    declaration = read(tmp_path, MINIMAL.replace("path: data", f'path: "{path}"'), **environment)
    files = declaration.sources["sales"].files
    assert files is not None and files.path == expected.format(folder=tmp_path, parent=tmp_path.parent)


@pytest.mark.parametrize("path", ["s3a://lake/shops", "file:/srv/shops", "/srv/shops"])
def test_a_delta_table_may_be_anywhere(tmp_path: Path, path: str) -> None:
    assert read(tmp_path, f"sources: {{shops: {{delta: '{path}'}}}}\n").sources["shops"].delta == path


def test_a_query_of_constants_has_no_sources(tmp_path: Path) -> None:
    """Written out: where `sources:` is missing, it was probably forgotten."""
    assert read(tmp_path, "sources: {}\n").sources == {}


def test_what_belongs_to_mrql(tmp_path: Path) -> None:
    more = "args: [100, a]\npaths: {tmp/s.bin: sales}\nloops: {ranks: {key: id, residual: 1e-4}}\n"
    declared = read(tmp_path, MINIMAL + more)
    assert declared.args == ("100", "a") and declared.paths == {"tmp/s.bin": "sales"}
    assert declared.ends == {"ranks": {"key": ("id",), "residual": 0.0001, "norm": "max"}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("paths: {tmp/s.bin: nowhere}\n", "`paths` names `nowhere`, which is not a declared source. Declare it"),
        ("loops: {r: {key: id}}\n", "the loop has no end, or several: it is `residual`, or `error` with `contraction`"),
        (
            "loops: {r: {key: id, error: 1e-3}}\n",
            "the loop has no end, or several: it is `residual`, or `error` with `contraction`",
        ),
        ("loops: {r: {key: id, residul: 1e-3}}\n", "loops.r.residul: unknown key. Did you mean `residual`?"),
    ],
)
def test_what_is_wrong_about_mrql(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        read(tmp_path, MINIMAL + more)
    assert said in str(caught.value)
