"""What other engines read: the table in docs/how-to/readers.md is what they do here, in an environment of their own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from deltafold.api import Files, View
from tests.night import night
from tests.package.environments import environment
from tests.sandbox import DeltaSandbox
from tests.spark.machine import PROJECT

PAGE = PROJECT / "docs" / "how-to" / "readers.md"
WANTED = (
    "deltalake==1.6.6", "pandas==3.1.1", "pyarrow==25.0.1", "polars==2.1.0", "duckdb==1.5.5",
    "duckdb-extension-delta==1.5.5", "daft==0.7.26",
)  # fmt: skip
TYPES = """
select id, id = 1 as yes, cast(id as tinyint) tiny, cast(id as smallint) small, cast(id as int) whole,
    cast(id / 4 as float) single, id / 4 as double, cast(id as decimal(30, 10)) / 7 as number, concat('é', id) word,
    cast(concat('b', id) as binary) bytes, date '2024-02-29' day, timestamp '2024-03-31 02:30:00.123456' at,
    array(id, null) list, named_struct('a', id, 'b', 'x') pair,
    cast(null as string) nothing
from t
"""
DONE = {"yes", "more columns", "wrong", "refuses"}
GROUPED = "select k, sum(v) s, count(*) n from t group by k"
BAG = "select k, v from t where v > 0"


def views(delta: DeltaSandbox) -> dict[str, View]:
    """The cases of the page, each with a view whose answer is one."""
    delta.source("t", "id bigint, k int, v int", [(1, 1, 1), (2, 1, 1), (3, 2, 5), (4, None, 2)])
    found = {
        "no rows": delta.another("select k, v from t where v > 99", publish="plain"),
        "all types": delta.another(TYPES, publish="plain"),
        "equal rows": delta.another(BAG, publish="plain"),
        "a grouped view after changes": delta.another(GROUPED, publish="plain"),
        "after a rebuild with other columns": delta.another(BAG, publish="plain", on_change="rebuild"),
        "clustered": delta.another(BAG, publish="plain", cluster_by=["k"]),
        "days that were landed": landed(delta),
        "names that differ in case": delta.another("select k as Key, v as `keyValue` from t", publish="plain"),
        "names with spaces": delta.another("select k as `the key`, v as `a,b` from t", publish="plain"),
        "timestamps without a time zone": delta.another(
            "select k, timestamp_ntz '2024-03-31 02:30:00' at from t", publish="plain"
        ),
        "published fast": delta.another(GROUPED, publish="fast"),
    }
    for view in found.values():
        view.refresh()
    delta.sql("insert into {t} values (5, 1, 1), (6, 1, 1), (7, 3, 3)")
    delta.sql("delete from {t} where k = 2")
    name = "after a rebuild with other columns"
    found[name] = delta.view(
        "select v as w, k, 1 as one from t", found[name].name, publish="plain", on_change="rebuild"
    )
    for view in found.values():
        view.refresh()
        assert view.verify().ok
    return found


def landed(delta: DeltaSandbox) -> View:
    for day in ("2024-01-01", "2024-01-02"):
        folder = delta.folder / "days" / f"day={day}"
        folder.mkdir(parents=True)
        (folder / "rows.csv").write_text(f"n\n{day[-1]}\n")
    delta.warehouse.source("days", Files(str(delta.folder / "days"), "csv", "n int, day date", partition_by="day"))
    delta.warehouse.land("days")
    return delta.another("select day, n from days", publish="plain")


@night
@pytest.mark.timeout(900)
def test_the_page_says_what_readers_do(delta: DeltaSandbox, tmp_path: Path) -> None:
    """Protects from an answer that a reader refuses or reads wrongly, and from a page that is not true."""
    python = environment(tmp_path / "readers", WANTED, pinned=False) / "python"
    cases = tmp_path / "cases"
    cases.mkdir()
    for name, view in views(delta).items():
        answer = view.answer().toArrow()
        with pa.OSFile(str(cases / f"{name}.arrow"), "wb") as file, pa.ipc.new_stream(file, answer.schema) as stream:
            stream.write_table(answer)
        (cases / f"{name}.path").write_text(view.path)
    script = Path(__file__).with_name("foreign_readers.py")
    done = subprocess.run([python, script, cases], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    (tmp_path / "told.json").write_text(json.dumps(told, indent=1))
    found = {name: [word.split(":")[0] for word in row.values()] for name, row in told.items()}
    assert found == documented(), json.dumps(told, indent=1)


def documented() -> dict[str, list[str]]:
    """The table of the page: by answer, what each reader does."""
    lines = [line.strip("|").split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line]
    rows = [[cell.strip() for cell in line] for line in lines]
    return {row[0]: row[1:] for row in rows if len(row) == 6 and {*row[1:]} <= DONE}


def test_the_page_has_every_reader_and_case() -> None:
    """Protects from a page whose table is no longer found, so that nothing is compared."""
    assert len(documented()) == 11
    versions = {name: version for name, _, version in (wanted.partition("==") for wanted in WANTED)}
    page = PAGE.read_text(encoding="utf-8")
    for name in ("deltalake", "pandas", "polars", "duckdb", "daft"):
        assert f"{name} {versions[name]}" in page
