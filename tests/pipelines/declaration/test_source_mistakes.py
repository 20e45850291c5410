"""The error for each mistake in a declared source: one sentence with file, line, key and fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.declaration.test_declaration import STREAM, complaint
from tests.pipelines.declaration.test_mistakes import NO_PLACE
from tests.pipelines.declared import MINIMAL


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sources: {", ", line 1: it is not YAML (expected the node content, but found '<stream end>'). Correct it."),
        ("sources:\n", ", line 1: sources: it must be a mapping. Write `key: value` lines under it."),
        (
            MINIMAL + "      expire: {column: at, after: 1 day}\n",
            ", line 3: sources.sales.files: `expire` names `at`, not a column of the schema (id, day). Correct it.",
        ),
        (
            MINIMAL + "      expire: {column: day, after: soon}\n",
            ", line 7: sources.sales.files.expire.after: 'soon' is not a duration. Write one such as `30 days` or `12 "
            "hours`.",
        ),
        (
            MINIMAL.replace("schema", "schema_ddl"),
            ", line 3: sources.sales.files.schema: it is missing. Add it.\n"
            ", line 6: sources.sales.files.schema_ddl: unknown key: did you mean `schema`?",
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
            "sources: {totals: {view: sales, primary_key: id}}\n",
            ", line 1: sources.totals: constraints of a view cannot be declared. Remove `primary_key`, `foreign_keys`, "
            "`append_only`.",
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
            "sources: {sales: {delta: 's3a://me:hunter2@lake/sales'}}\n",
            f", line 1: sources.sales.delta: the address contains a password{NO_PLACE}",
        ),
    ],
)
def test_every_mistake_in_a_source_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    assert complaint(tmp_path, text) == said
