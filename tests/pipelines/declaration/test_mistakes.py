"""The error for each mistake in a declaration: a line with its place (file, line, key), what it names, and the way out.

Expected are parts of each line, in order, with … between them: the words around them are free to change.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deltafold.pipelines.declaration import parsing
from deltafold.pipelines.declaration.parsing import DeclarationError
from tests.pipelines.declaration.test_declaration import assert_says, complaint
from tests.pipelines.declared import MINIMAL, PARTITIONED

NO_PLACE = "…Remove…environment…AWS_SECRET_ACCESS_KEY…core-site.xml…$HADOOP_CONF_DIR"


BAD_TYPES = {
    "id INT, amount DOUBEL": "`amount`…`DOUBEL`…`DOUBLE`",
    "id int64": "`id`…`int64`…`BIGINT`",
    "{id: INT, name: text}": "`name`…`text`…`STRING`",
    "id INT, tags ARRAY<STRNG>": "`tags`…`STRNG`…`STRING`",
    "{s: 'STRUCT<a: INT, b: MAP<STRING, datetime>>'}": "`s`…`datetime`…`TIMESTAMP`",
    "id xyzzy": "`id`…`xyzzy`…INT…STRING…TIMESTAMP",
    "tags ARRAY": "`tags`…`ARRAY`…`ARRAY<INT>`",
    "m MAP<STRING>": "`m`…`MAP`…1…`MAP<STRING, INT>`",
    "name VARCHAR": "`name`…`VARCHAR`…`VARCHAR(20)`…`STRING`",
    "id 5": "`id`…`5`…`STRING`",
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": …mapping…`sources:`"),
        ("- a", ": …mapping…`sources:`"),
        ("a: &a [*a]\n", ", line 1: …itself…anchor"),
        ("description: x\n", ": sources: …missing…`sources: {}`"),
        (MINIMAL + "polcy: auto\n", ", line 7: polcy: …`policy`"),
        (
            MINIMAL + "monoids: {m: {type: INT, zero: 0, plus: ' '}}\n",
            ", line 7: monoids.m: `plus`…empty…SQL",
        ),
        (
            MINIMAL + "monoids: {m: {type: INT, zero: 0, plus: a, minus: b}}\n",
            ", line 7: monoids.m.minus: …inverse, of, plus, type, unit, zero",
        ),
        (MINIMAL + "name: x\n", ", line 7: name: …folder…Remove"),
        (
            MINIMAL + "policy: auto\npolicy: incremental\n",
            ", line 8: `policy`…twice…Remove one",
        ),
        (
            MINIMAL + "policy: full\n",
            ", line 7: policy: `full`…'incremental', 'auto' or 'definition'",
        ),
        (MINIMAL + "description: 5\n", ", line 7: description: …text…quotation marks"),
        (MINIMAL + "description:\n", ", line 7: description: …no value…remove"),
        (
            MINIMAL.replace("sales:", "Sales:"),
            ", line 2: sources.Sales: …name…small letters…63",
        ),
        (
            MINIMAL.replace("format: csv", "formt: csv"),
            ", line 3: sources.sales.files.format: …missing\n, line 5: sources.sales.files.formt: …`format`",
        ),
        (
            MINIMAL.replace("id INT, day DATE", "id, day DATE"),
            ", line 6: sources.sales.files.schema: `id`…`name TYPE, name TYPE`",
        ),
        (
            MINIMAL.replace("id INT, day DATE", "id INT, ID DATE"),
            ", line 6: sources.sales.files.schema: …`ID`…twice…Remove one",
        ),
        (
            MINIMAL.replace("id INT, day DATE", "{id: 'INT, x INT'}"),
            ", line 6: sources.sales.files.schema: …one type…`name: type`",
        ),
        (
            MINIMAL.replace("id INT, day DATE", "m MAP<STRING"),
            ", line 6: sources.sales.files.schema: …bracket…not closed",
        ),
        *(
            (MINIMAL.replace("id INT, day DATE", columns), f", line 6: sources.sales.files.schema: …{says}")
            for columns, says in BAD_TYPES.items()
        ),
        (
            MINIMAL + "      options: {Mode: DROPMALFORMED}\n",
            ", line 3: sources.sales.files: `Mode`…malformed…Remove it…`malformed: quarantine`",
        ),
        (
            MINIMAL + "      partition_by: dya\n",
            ", line 7: sources.sales.files.partition_by: `dya`…(id, day)…Add it",
        ),
        (
            MINIMAL + "publish_as: totals\n",
            ", line 7: publish_as: 'totals'…`database.view`",
        ),
        (
            MINIMAL + "    delta: x\n",
            ", line 2: sources.sales: …`delta` and `files`…one of…`delta: …`table: …`files: …`stream: …`view: ",
        ),
        (
            MINIMAL + "    primary_key: idd\n",
            ", line 2: sources.sales: …primary key…`idd`…(id, day)",
        ),
        (
            MINIMAL + "    primary_key: 5\n",
            ", line 7: sources.sales.primary_key: …list…`- `",
        ),
        (MINIMAL + "    primary_key: []\n", ", line 7: sources.sales.primary_key: …empty…at least one"),
        (
            MINIMAL + "    foreign_keys: [{columns: id, source: shops}]\n",
            ": …foreign key (id) of `sales`…`shops`…not declared…Declare it",
        ),
        (
            MINIMAL + "    foreign_keys: [{columns: id, source: sales}]\n",
            ": …foreign key (id) of `sales`…no `primary_key`…Add it…remove",
        ),
        (
            MINIMAL + "    primary_key: [id, day]\n    foreign_keys: [{columns: id, source: sales}]\n",
            ": …foreign key (id) of `sales`…primary key…(id, day)…one column for each",
        ),
        (
            MINIMAL + "    foreign_keys: [{column: id, source: sales}]\n",
            ", line 7: sources.sales.foreign_keys.0.columns: …missing\n"
            ", line 7: sources.sales.foreign_keys.0.column: …`columns`",
        ),
        (
            MINIMAL + "    invariant: true\n    append_only: true\n",
            ", line 2: sources.sales: …`invariant` and `append_only`…Keep `append_only`",
        ),
        (MINIMAL + "    invariant: 'yes'\n", ", line 7: sources.sales.invariant: …true or false"),
        (
            MINIMAL.replace("path: data", "path: '${NO_SUCH}/x'"),
            ", line 4: sources.sales.files.path: …NO_SUCH is not set…${NO_SUCH:-",
        ),
        (
            MINIMAL.replace("path: data", "path: '${no such'"),
            ", line 4: sources.sales.files.path: `${`…${NAME} or ${NAME:-default}",
        ),
        (
            MINIMAL.replace("path: data", "path: s3://lake/in"),
            ", line 4: sources.sales.files.path: …Write s3a: instead",
        ),
        (
            MINIMAL.replace("path: data", "path: data/s3a://lake"),
            ", line 4: sources.sales.files.path: …://…local folder",
        ),
        (
            MINIMAL.replace("path: data", "path: '${LAKE:-HDFS:/lake}/in'"),
            ", line 4: sources.sales.files.path: …Write hdfs: instead",
        ),
        (
            MINIMAL + "warehouse: lakes/s3a://lake/state\n",
            ", line 7: warehouse: …://…local folder",
        ),
        (MINIMAL + "warehouse: s3://lake/state\n", ", line 7: warehouse: …Write s3a: instead"),
        (MINIMAL + "warehouse: S3A://lake/state\n", ", line 7: warehouse: …Write s3a: instead"),
        (MINIMAL + "warehouse: s3a:///state\n", ", line 7: warehouse: …names no bucket…s3a://bucket/folder"),
        (
            MINIMAL.replace("path: data", "path: ''"),
            ", line 4: sources.sales.files.path: …empty…Name a folder",
        ),
        (
            MINIMAL.replace("path: data", 'path: "a\\nb"'),
            ", line 4: sources.sales.files.path: …control character…Remove",
        ),
        (
            MINIMAL + "partitions: {kind: dynamic}\n",
            ": `partitions`…no source has `partition_by`…Add it",
        ),
        (
            PARTITIONED + "partitions: {kind: daily}\n",
            ", line 8: partitions: …start…Add `start: 2013-01-01`",
        ),
        (
            PARTITIONED + "partitions: {kind: dynamic, start: 2013-01-01}\n",
            ", line 8: partitions: …dynamic…start…end…Remove them…kind: daily",
        ),
        (
            PARTITIONED + "partitions: {kind: daily, start: 2013-01-02, end: 2013-01-01}\n",
            ", line 8: partitions: …end…before…start…Exchange",
        ),
        (
            PARTITIONED + "partitions: {kind: daily, start: 20130101}\n",
            ", line 8: partitions.start: …day…2013-01-01",
        ),
        (
            PARTITIONED + "partitions: {kind: daily, start: yesterday}\n",
            ", line 8: partitions.start: …day…2013-01-01",
        ),
        (
            PARTITIONED + "partitions: {kind: daily, start: 2013-02-30}\n",
            ": …YAML…day is out of range for month",
        ),
        (
            MINIMAL + "schedule: daily\n",
            ", line 7: schedule: `daily`…1…five…0 6 * * *",
        ),
        (
            MINIMAL + "spark: {memory: lots}\n",
            ", line 7: spark.memory: `lots`…2g or 512m",
        ),
        (
            MINIMAL + "spark: {master: localhost}\n",
            ", line 7: spark.master: `localhost`…not a master URL of Spark…spark://host:7077",
        ),
        (
            MINIMAL + "spark: {settings: {shuffle: 4}}\n",
            ", line 7: spark.settings.shuffle: …setting…`spark.`",
        ),
        (
            MINIMAL + "spark: {settings: {spark.hadoop.fs.s3a.secret.key: hunter2}}\n",
            f", line 7: spark.settings: `spark.hadoop.fs.s3a.secret.key` …secret{NO_PLACE}",
        ),
        (
            MINIMAL
            + "spark: {settings: {spark.driver.extraJavaOptions: -Djavax.net.ssl.trustStorePassword=hunter2}}\n",
            f", line 7: spark.settings: `spark.driver.extraJavaOptions` …secret{NO_PLACE}",
        ),
        (
            MINIMAL + "check: {sample: some}\n",
            ", line 7: check.sample: `some`…1%…at most 100%",
        ),
        (
            MINIMAL + "check: {cron: daily}\n",
            ", line 7: check.cron: …sample, schedule",
        ),
        (
            MINIMAL + "spark: {cores: 2}\n",
            ", line 7: spark.cores: …master, memory, settings, warm",
        ),
    ],
)
def test_every_mistake_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    assert_says(complaint(tmp_path, text), said)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DeclarationError, match="not UTF-8"):
        parsing.read_declaration(tmp_path / "pipeline.yaml", {})
