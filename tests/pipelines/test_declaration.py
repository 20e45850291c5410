"""What a declaration may say, and the one sentence for each thing that it may not."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from incremental.algebra.sources import Expire, Files, ForeignKey, Stream
from pipelines import source_objects
from pipelines.declaration import reading
from pipelines.declaration.declaration import Declaration, Partitions
from pipelines.declaration.reading import DeclarationError
from tests.pipelines.declared import MINIMAL, PARTITIONED

NO_PLACE = (
    ", which does not belong in this file. Remove it: Spark takes it from the environment (such as "
    "AWS_SECRET_ACCESS_KEY) or from a core-site.xml in $HADOOP_CONF_DIR."
)

BAD_TYPES = {
    "id INT, amount DOUBEL": "`amount` has the unknown type `DOUBEL`: did you mean `DOUBLE`?",
    "id int64": "`id` has the unknown type `int64`: did you mean `BIGINT`?",
    "{id: INT, name: text}": "`name` has the unknown type `text`: did you mean `STRING`?",
    "id INT, tags ARRAY<STRNG>": "`tags` has the unknown type `STRNG`: did you mean `STRING`?",
    "{s: 'STRUCT<a: INT, b: MAP<STRING, datetime>>'}": "`s` has the unknown type `datetime`: did you mean `TIMESTAMP`?",
    "id xyzzy": "`id` has the unknown type `xyzzy`: Spark has INT, BIGINT, DOUBLE, DECIMAL(18,2), BOOLEAN, STRING, "
    "DATE, TIMESTAMP and others.",
    "tags ARRAY": "`tags` has type `ARRAY` without the types in it. Write `ARRAY<INT>`.",
    "m MAP<STRING>": "`m` has type `MAP` with 1 types in it. Write `MAP<STRING, INT>`.",
    "name VARCHAR": "`name` has type `VARCHAR` without a length. Write `VARCHAR(20)`, or `STRING`.",
    "id 5": "`id` has no type in `5`. Write one, for example `STRING`.",
}

NO_FOLDER = "s3a: is not a folder of this machine. Name a local folder; only a Delta source may be a URI."


def read(folder: Path, text: str, **environment: str) -> Declaration:
    path = folder / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    return reading.read_declaration(path, environment)


def complaint(folder: Path, text: str, **environment: str) -> str:
    """What is said about a declaration, without the file's name, which every line starts with."""
    with pytest.raises(DeclarationError) as caught:
        read(folder, text, **environment)
    said = str(caught.value)
    assert all(line.startswith(f"{folder}/pipeline.yaml") for line in said.splitlines())
    return said.replace(f"{folder}/pipeline.yaml", "")


def test_the_smallest_declaration_has_the_documented_defaults(tmp_path: Path) -> None:
    declaration = read(tmp_path, MINIMAL)
    assert (declaration.policy, declaration.publish, declaration.schedule) == ("incremental", "auto", None)
    assert declaration.on_change == "refuse"
    assert declaration.cut.kind == "dynamic"
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
    assert declaration.cut == Partitions(kind="daily", start=datetime.date(2013, 1, 1), end=datetime.date(2013, 12, 31))
    assert (declaration.warehouse, declaration.on_change) == (f"{tmp_path.parent}/lake", "rebuild")
    assert declaration.spark.settings == {"spark.sql.shuffle.partitions": "4"}


def test_what_is_done_with_malformed_rows_reaches_the_warehouse(tmp_path: Path) -> None:
    text = MINIMAL + "      malformed: quarantine\n      quarantine_limit: 7\n"
    files = source_objects.declare(read(tmp_path, text).sources["sales"])
    assert isinstance(files, Files)
    assert (files.malformed, files.quarantine_limit) == ("quarantine", 7)


def test_expire_reaches_the_warehouse(tmp_path: Path) -> None:
    files = source_objects.declare(
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
    stream = source_objects.declare(read(tmp_path, text).sources["clicks"])
    options = {"maxFilesPerTrigger": "10"}
    keys = {"primary_key": ("id",), "append_only": True}
    path = f"{tmp_path}/clicks"
    assert stream == Stream(
        "json", "`id` INT, `page` STRING", path, options, **keys, malformed="quarantine", quarantine_limit=7
    )
    uri = source_objects.declare(
        read(tmp_path, STREAM.replace("path: clicks", "path: s3a://lake/in")).sources["clicks"]
    )
    assert uri.address == "s3a://lake/in"


def test_declared_keys_reach_the_warehouse(tmp_path: Path) -> None:
    """One column may stand alone; a foreign key may refer to its own source."""
    text = MINIMAL + "    primary_key: id\n    foreign_keys: [{columns: [id], source: sales}]\n    append_only: true\n"
    source = read(tmp_path, text).sources["sales"]
    key = ForeignKey(("id",), "sales")
    assert (source.primary_key, source.append_only) == (("id",), True)
    files = source_objects.declare(source)
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": it must be a mapping that declares at least `sources:`. Add them."),
        ("- a", ": it must be a mapping that declares at least `sources:`. Add them."),
        ("sources: {", ", line 1: it is not YAML (expected the node content, but found '<stream end>'). Correct it."),
        ("a: &a [*a]\n", ", line 1: a value contains itself. Remove the anchor."),
        ("description: x\n", ": sources: it is missing. Add it, for a query of constants as `sources: {}`."),
        ("sources:\n", ", line 1: sources: it must be a mapping. Write `key: value` lines under it."),
        (MINIMAL + "polcy: auto\n", ", line 7: polcy: unknown key: did you mean `policy`?"),
        (
            MINIMAL + "monoids: {m: {type: INT, zero: 0, plus: ' '}}\n",
            ", line 7: monoids.m: `plus` is empty. Write SQL there, or remove it.",
        ),
        (
            MINIMAL + "monoids: {m: {type: INT, zero: 0, plus: a, minus: b}}\n",
            ", line 7: monoids.m.minus: unknown key: there are: inverse, of, plus, type, unit, zero.",
        ),
        (
            MINIMAL + "      expire: {column: at, after: 1 day}\n",
            ", line 3: sources.sales.files: `expire` names `at`, not a column of the schema (id, day). Correct it.",
        ),
        (
            MINIMAL + "      expire: {column: day, after: soon}\n",
            ", line 7: sources.sales.files.expire.after: 'soon' is not a duration. Write one such as `30 days` or `12 "
            "hours`.",
        ),
        (MINIMAL + "name: x\n", ", line 7: name: a pipeline is named by its folder. Remove it."),
        (
            MINIMAL + "policy: auto\npolicy: incremental\n",
            ", line 8: `policy` is declared twice. Remove one of the two.",
        ),
        (
            MINIMAL + "policy: full\n",
            ", line 7: policy: `full` is not one of 'incremental', 'auto' or 'definition'. Choose one of them.",
        ),
        (MINIMAL + "description: 5\n", ", line 7: description: it must be text. Put it in quotation marks."),
        (MINIMAL + "description:\n", ", line 7: description: it has no value. Write one, or remove the key."),
        (
            MINIMAL.replace("sales:", "Sales:"),
            ", line 2: sources.Sales: invalid source name. Use a small letter followed by small letters, digits and "
            "_, at most 63 in all.",
        ),
        (
            MINIMAL.replace("format: csv", "formt: csv"),
            ", line 3: sources.sales.files.format: it is missing. Add it.\n"
            ", line 5: sources.sales.files.formt: unknown key: did you mean `format`?",
        ),
        (
            MINIMAL.replace("schema", "schema_ddl"),
            ", line 3: sources.sales.files.schema: it is missing. Add it.\n"
            ", line 6: sources.sales.files.schema_ddl: unknown key: did you mean `schema`?",
        ),
        (
            MINIMAL.replace("id INT, day DATE", "id, day DATE"),
            ", line 6: sources.sales.files.schema: `id` is not a column. Write `name TYPE, name TYPE`, for example "
            "`id INT, day DATE`.",
        ),
        (
            MINIMAL.replace("id INT, day DATE", "id INT, ID DATE"),
            ", line 6: sources.sales.files.schema: column `ID` is declared twice. Remove one.",
        ),
        (
            MINIMAL.replace("id INT, day DATE", "{id: 'INT, x INT'}"),
            ", line 6: sources.sales.files.schema: a column's type is not one type. Write each column as `name: type`, "
            "for example `amount: DOUBLE`.",
        ),
        (
            MINIMAL.replace("id INT, day DATE", "m MAP<STRING"),
            ", line 6: sources.sales.files.schema: a bracket or quotation mark is not closed. Close it.",
        ),
        *(
            (MINIMAL.replace("id INT, day DATE", columns), f", line 6: sources.sales.files.schema: column {says}")
            for columns, says in BAD_TYPES.items()
        ),
        (
            MINIMAL + "      options: {Mode: DROPMALFORMED}\n",
            ", line 3: sources.sales.files: `Mode` cannot be an option: a landing reads every row and stops at "
            "malformed ones. Remove it, or keep those rows apart with `malformed: quarantine`.",
        ),
        (
            MINIMAL + "      partition_by: dya\n",
            ", line 7: sources.sales.files.partition_by: `dya` is not a column of the schema (id, day). "
            "Add it there with its type.",
        ),
        (
            MINIMAL + "publish_as: totals\n",
            ", line 7: publish_as: 'totals' cannot name a SQL view. Write `database.view` with letters, digits and "
            "underscores.",
        ),
        (
            MINIMAL + "    delta: x\n",
            ", line 2: sources.sales: a source has one origin, this one has `delta` and `files`. Write one of "
            "`delta: path`, `table: name`, `files: {path, format, schema}`, `stream: {format, schema}` and "
            "`view: pipeline`.",
        ),
        (
            STREAM + "    invariant: true\n",
            ", line 2: sources.clicks: a stream cannot be invariant: it grows. Remove `invariant`.",
        ),
        (
            STREAM.replace("      path: clicks\n", ""),
            ", line 3: sources.clicks.stream: a stream of json needs a folder. Give `path`.",
        ),
        (
            STREAM + "    primary_key: key\n",
            ", line 2: sources.clicks: the primary key names `key`, which is not a column of the schema (id, page). "
            "Correct it.",
        ),
        (
            "sources: {sales: {table: lake/sales}}\n",
            ", line 1: sources.sales.table: 'lake/sales' is not the name of a table. Write `catalog.schema.table` or "
            "`schema.table`, and backquotes around a part with other characters; a folder or a URI is a path, in "
            "`delta:`.",
        ),
        (
            "sources: {sales: {table: delta.`/lake/sales`}}\n",
            ", line 1: sources.sales.table: delta.`/lake/sales` is a path, not a name in the catalog. Declare the path "
            "/lake/sales, in `delta:`.",
        ),
        (
            "sources: {sales: {table: '${NO_SUCH_CATALOG}.sales'}}\n",
            ", line 1: sources.sales.table: the environment variable NO_SUCH_CATALOG is not set. Set it, or write "
            "${NO_SUCH_CATALOG:-a default}.",
        ),
        (
            MINIMAL + "    primary_key: idd\n",
            ", line 2: sources.sales: the primary key names `idd`, which is not a column of the schema (id, day). "
            "Correct it.",
        ),
        (
            MINIMAL + "    primary_key: 5\n",
            ", line 7: sources.sales.primary_key: it must be a list. Write `- ` lines under it.",
        ),
        (MINIMAL + "    primary_key: []\n", ", line 7: sources.sales.primary_key: it is empty. Declare at least one."),
        (
            MINIMAL + "    foreign_keys: [{columns: id, source: shops}]\n",
            ": the foreign key (id) of `sales` refers to `shops`, which is not declared. Declare it, or name one "
            "of sales.",
        ),
        (
            MINIMAL + "    foreign_keys: [{columns: id, source: sales}]\n",
            ": the foreign key (id) of `sales` refers to `sales`, which declares no `primary_key`. Add it there, or "
            "remove the foreign key.",
        ),
        (
            MINIMAL + "    primary_key: [id, day]\n    foreign_keys: [{columns: id, source: sales}]\n",
            ": the foreign key (id) of `sales` refers to `sales`, whose primary key is (id, day). Name one column "
            "for each.",
        ),
        (
            MINIMAL + "    foreign_keys: [{column: id, source: sales}]\n",
            ", line 7: sources.sales.foreign_keys.0.columns: it is missing. Add it.\n"
            ", line 7: sources.sales.foreign_keys.0.column: unknown key: did you mean `columns`?",
        ),
        (
            MINIMAL + "    invariant: true\n    append_only: true\n",
            ", line 2: sources.sales: it is both `invariant` and `append_only`. Keep `append_only` if rows are "
            "added to it.",
        ),
        (
            "sources: {totals: {view: sales, primary_key: id}}\n",
            ", line 1: sources.totals: constraints of a view cannot be declared. Remove `primary_key`, `foreign_keys`, "
            "`append_only`.",
        ),
        (MINIMAL + "    invariant: 'yes'\n", ", line 7: sources.sales.invariant: it must be true or false."),
        (
            MINIMAL.replace("path: data", "path: '${NO_SUCH}/x'"),
            ", line 4: sources.sales.files.path: the environment variable NO_SUCH is not set. Set it, or write "
            "${NO_SUCH:-a default}.",
        ),
        (
            MINIMAL.replace("path: data", "path: '${no such'"),
            ", line 4: sources.sales.files.path: `${` opens a variable that is not closed or not a name. "
            "Write ${NAME} or ${NAME:-default}.",
        ),
        (
            MINIMAL.replace("path: data", "path: s3a://lake/in"),
            f", line 4: sources.sales.files.path: {NO_FOLDER}",
        ),
        (
            MINIMAL.replace("path: data", "path: data/s3a://lake"),
            ", line 4: sources.sales.files.path: a path with :// in it is a misplaced URI. Name a local folder.",
        ),
        (
            MINIMAL.replace("path: data", "path: '${LAKE:-hdfs:/lake}/in'"),
            f", line 4: sources.sales.files.path: {NO_FOLDER.replace('s3a', 'hdfs')}",
        ),
        (
            MINIMAL + "      malformed: drop\n",
            ", line 7: sources.sales.files.malformed: `drop` is not one of 'fail' or 'quarantine'. Choose one of them.",
        ),
        (
            MINIMAL.replace("csv", "parquet") + "      malformed: quarantine\n",
            ", line 3: sources.sales.files: rows of parquet files cannot be quarantined: each is read completely or "
            "not at all. Use `malformed: fail`.",
        ),
        (
            MINIMAL + "      quarantine_limit: 7\n",
            ", line 3: sources.sales.files: `quarantine_limit` is for `malformed: quarantine`. Add that, or remove the "
            "limit.",
        ),
        (
            MINIMAL + "warehouse: s3a://lake/state\n",
            f", line 7: warehouse: {NO_FOLDER}",
        ),
        (
            MINIMAL.replace("path: data", "path: ''"),
            ", line 4: sources.sales.files.path: the path is empty. Name a folder.",
        ),
        (
            MINIMAL.replace("path: data", 'path: "a\\nb"'),
            ", line 4: sources.sales.files.path: the path contains a control character. Remove it.",
        ),
        (
            MINIMAL + "partitions: {kind: dynamic}\n",
            ": `partitions` is declared, but no source has `partition_by`. Add it to the source that is partitioned.",
        ),
        (
            PARTITIONED + "partitions: {kind: daily}\n",
            ", line 8: partitions: daily partitions need a start. Add `start: 2013-01-01`, the first day there can be.",
        ),
        (
            PARTITIONED + "partitions: {kind: dynamic, start: 2013-01-01}\n",
            ", line 8: partitions: dynamic partitions have no start and no end. Remove them, or use kind: daily.",
        ),
        (
            PARTITIONED + "partitions: {kind: daily, start: 2013-01-02, end: 2013-01-01}\n",
            ", line 8: partitions: the end lies before the start. Exchange them.",
        ),
        (
            PARTITIONED + "partitions: {kind: daily, start: 20130101}\n",
            ", line 8: partitions.start: it is not a day. Write one such as 2013-01-01.",
        ),
        (
            PARTITIONED + "partitions: {kind: daily, start: yesterday}\n",
            ", line 8: partitions.start: it is not a day. Write one such as 2013-01-01.",
        ),
        (
            PARTITIONED + "partitions: {kind: daily, start: 2013-02-30}\n",
            ": it is not YAML (day is out of range for month). Correct it.",
        ),
        (
            MINIMAL + "schedule: daily\n",
            ", line 7: schedule: `daily` is not a schedule: it has 1 fields, not five. Write minute, hour, day of the "
            'month, month and day of the week, for example "0 6 * * *" for every day at six.',
        ),
        (
            MINIMAL + "spark: {memory: lots}\n",
            ", line 7: spark.memory: `lots` is not an amount. Write a number and m or g, for example 2g or 512m.",
        ),
        (
            MINIMAL + "spark: {settings: {shuffle: 4}}\n",
            ", line 7: spark.settings.shuffle: it is not a setting of Spark. Write a name that starts with `spark.`.",
        ),
        (
            MINIMAL + "spark: {settings: {spark.hadoop.fs.s3a.secret.key: hunter2}}\n",
            f", line 7: spark.settings: `spark.hadoop.fs.s3a.secret.key` looks like a secret{NO_PLACE}",
        ),
        (
            MINIMAL
            + "spark: {settings: {spark.driver.extraJavaOptions: -Djavax.net.ssl.trustStorePassword=hunter2}}\n",
            f", line 7: spark.settings: `spark.driver.extraJavaOptions` looks like a secret{NO_PLACE}",
        ),
        (
            "sources: {sales: {delta: 's3a://me:hunter2@lake/sales'}}\n",
            f", line 1: sources.sales.delta: the address contains a password{NO_PLACE}",
        ),
        (
            MINIMAL + "check: {sample: some}\n",
            ", line 7: check.sample: `some` is not a share. Write for example 1% or 0.5%, at most 100%.",
        ),
        (
            MINIMAL + "check: {cron: daily}\n",
            ", line 7: check.cron: unknown key: there are: sample, schedule.",
        ),
        (
            MINIMAL + "spark: {cores: 2}\n",
            ", line 7: spark.cores: unknown key: there are: master, memory, settings, warm.",
        ),
    ],
)
def test_every_mistake_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    assert complaint(tmp_path, text) == said


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DeclarationError, match="not UTF-8"):
        reading.read_declaration(tmp_path / "pipeline.yaml", {})


@pytest.mark.parametrize("text", ["0 6 * * *", "*/15 0-6,12 1 jan,Feb *", "@daily", "0 0 * * 7", "5/10 * * * *"])
def test_schedules(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, MINIMAL + f'schedule: "{text}"\n').schedule == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("61 * * * *", "`61` is not a minute of a cron schedule. Choose 0 to 59"),
        ("* * 0 * *", "`0` is not a day of the month"),
        ("* * * foo *", "`foo` is not a month"),
        ("* 6-2 * * *", "`6-2` runs backwards"),
        ("*/0 * * * *", "`*/0` has an invalid step"),
        ("? * * * *", "`?` is not a minute"),
        ("@often", "`@often` is not a schedule"),
    ],
)
def test_wrong_schedules(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(tmp_path, MINIMAL + f'schedule: "{text}"\n')


DAILY = Partitions(kind="daily", start=datetime.date(2013, 1, 1), end=datetime.date(2013, 12, 31))


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "a\\b", "a\nb", "\x00"])
def test_a_partition_is_one_folders_name(value: str) -> None:
    for partitions in (Partitions(kind="dynamic"), DAILY):
        with pytest.raises(ValueError, match="it names no single folder"):
            partitions.check(value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("20130101", "is not a day"),
        ("x' OR '1'='1", "is not a day"),
        ("2012-12-31", "is outside"),
        ("2014-01-01", "to"),
    ],
)
def test_a_daily_partition_is_a_day_between_start_and_end(value: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DAILY.check(value)


def test_partitions_that_are_fine() -> None:
    assert DAILY.check("2013-12-31") == "2013-12-31"
    assert Partitions(kind="dynamic").check("Côte d'Ivoire") == "Côte d'Ivoire"


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
        ("loops: {r: {key: id, residul: 1e-3}}\n", "loops.r.residul: unknown key: did you mean `residual`?"),
    ],
)
def test_what_is_wrong_about_mrql(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        read(tmp_path, MINIMAL + more)
    assert said in str(caught.value)
