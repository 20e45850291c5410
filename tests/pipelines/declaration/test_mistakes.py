"""The error for each mistake in a declaration: one sentence with file, line, key and fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.declaration import reading
from pipelines.declaration.reading import DeclarationError
from tests.pipelines.declaration.test_declaration import complaint
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": it must be a mapping that declares at least `sources:`. Add them."),
        ("- a", ": it must be a mapping that declares at least `sources:`. Add them."),
        ("a: &a [*a]\n", ", line 1: a value contains itself. Remove the anchor."),
        ("description: x\n", ": sources: it is missing. Add it, for a query of constants as `sources: {}`."),
        (MINIMAL + "polcy: auto\n", ", line 7: polcy: unknown key: did you mean `policy`?"),
        (
            MINIMAL + "monoids: {m: {type: INT, zero: 0, plus: ' '}}\n",
            ", line 7: monoids.m: `plus` is empty. Write SQL there, or remove it.",
        ),
        (
            MINIMAL + "monoids: {m: {type: INT, zero: 0, plus: a, minus: b}}\n",
            ", line 7: monoids.m.minus: unknown key: there are: inverse, of, plus, type, unit, zero.",
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
