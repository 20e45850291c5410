"""The error for each mistake in a declared source: place, names and way out; … as in test_mistakes.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.declaration.test_declaration import STREAM, assert_says, complaint
from tests.pipelines.declaration.test_mistakes import NO_PLACE
from tests.pipelines.declared import MINIMAL


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sources: {", ", line 1: …YAML…found '<stream end>'"),
        ("sources:\n", ", line 1: sources: …mapping…`key: value`"),
        (
            MINIMAL + "      expire: {column: at, after: 1 day}\n",
            ", line 3: sources.sales.files: `expire`…`at`…(id, day)",
        ),
        (
            MINIMAL + "      expire: {column: day, after: soon}\n",
            ", line 7: sources.sales.files.expire.after: 'soon'…`30 days`",
        ),
        (
            MINIMAL.replace("schema", "schema_ddl"),
            ", line 3: sources.sales.files.schema: …missing\n, line 6: sources.sales.files.schema_ddl: …`schema`",
        ),
        (
            STREAM + "    invariant: true\n",
            ", line 2: sources.clicks: …stream…Remove `invariant`",
        ),
        (
            STREAM.replace("      path: clicks\n", ""),
            ", line 3: sources.clicks.stream: …json…folder…`path`",
        ),
        (
            STREAM + "    primary_key: key\n",
            ", line 2: sources.clicks: …primary key…`key`…(id, page)",
        ),
        (
            "sources: {sales: {table: lake/sales}}\n",
            ", line 1: sources.sales.table: 'lake/sales'…`catalog.schema.table`…`schema.table`…backquotes…`delta:`",
        ),
        (
            "sources: {sales: {table: delta.`/lake/sales`}}\n",
            ", line 1: sources.sales.table: delta.`/lake/sales`…path /lake/sales, in `delta:`",
        ),
        (
            "sources: {sales: {table: '${NO_SUCH_CATALOG}.sales'}}\n",
            ", line 1: sources.sales.table: …NO_SUCH_CATALOG is not set…${NO_SUCH_CATALOG:-",
        ),
        (
            "sources: {totals: {view: sales, primary_key: id}}\n",
            ", line 1: sources.totals: …view…Remove `primary_key`, `foreign_keys`, `append_only`",
        ),
        (
            MINIMAL + "      malformed: drop\n",
            ", line 7: sources.sales.files.malformed: `drop`…'fail' or 'quarantine'",
        ),
        (
            MINIMAL.replace("csv", "parquet") + "      malformed: quarantine\n",
            ", line 3: sources.sales.files: …parquet…quarantined…`malformed: fail`",
        ),
        (
            MINIMAL + "      quarantine_limit: 7\n",
            ", line 3: sources.sales.files: `quarantine_limit`…`malformed: quarantine`…remove",
        ),
        (
            "sources: {sales: {delta: 's3a://me:hunter2@lake/sales'}}\n",
            f", line 1: sources.sales.delta: …password{NO_PLACE}",
        ),
    ],
)
def test_every_mistake_in_a_source_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    assert_says(complaint(tmp_path, text), said)
