"""A pipeline of many datasets, in files of SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import StateError
from deltafold.algebra.results.report import Verification
from deltafold.cli import exit_codes, project
from deltafold.lake.protocol import Lake
from deltafold.pipelines import catalogue, folder_project
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.project import refuse_datasets
from deltafold.spark import session
from deltafold.view import View
from tests.cli.calling import call

DECLARATION = """\
sources:
  orders:
    files: {path: data/orders, format: csv, schema: "id INT, shop STRING, amount INT"}
policy: auto
datasets:
  files: datasets/*.sql
  options:
    by_shop: {tags: [nightly]}
"""
QUERIES = {
    "paid": "-- deltafold: policy=incremental\nselect id, shop, amount from orders where amount > 0",
    "by_shop": "select shop, sum(amount) total, count(*) n from paid group by shop",
    "best": "-- what sells best\n-- deltafold: tags=nightly,hourly\nselect max(total) best from by_shop",
    "unpaid": "select count(*) n from orders where amount = 0",
}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the pipeline `shop`, with one input file."""
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path / "pipelines"))
    return write_shop(tmp_path / "pipelines" / "shop", DECLARATION, QUERIES)


def write_shop(home: Path, declaration: str, queries: Mapping[str, str]) -> Path:
    """Write a pipeline of several datasets, with one input file of orders, and return its folder."""
    (home / "datasets").mkdir(parents=True)
    (home / "data" / "orders").mkdir(parents=True)
    (home / "pipeline.yaml").write_text(declaration)
    for name, query in queries.items():
        (home / "datasets" / f"{name}.sql").write_text(query)
    (home / "data" / "orders" / "a.csv").write_text("id,shop,amount\n1,x,5\n2,y,7\n3,x,0\n")
    return home


def rows(spark: SparkSession, lake: Lake, home: Path, name: str) -> list[tuple[object, ...]]:
    """Rows of a dataset, as `deltafold run` left them."""
    from deltafold.pipelines.open_project import OpenProject

    opened = OpenProject(folder_project.load_project(home), spark)
    opened.open()
    view = next(view for view in opened.views.values() if view.name == name)
    return sorted(tuple(row) for row in view.answer().collect())


def test_a_folder_of_queries_is_refreshed_as_one(
    spark: SparkSession, in_memory: Lake, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each after those that it reads, whatever their names; a selection leaves the others as they are."""
    before = call("verify", "shop")
    assert "best: it was never refreshed, so there is nothing to compare" in before.stdout
    assert before.exit_code == exit_codes.DATA
    assert call("run", "shop", "--select", "by_shop").exit_code == exit_codes.USAGE  # paid was never refreshed
    result = call("run", "shop")
    assert result.exit_code == 0, result.output
    assert rows(spark, in_memory, home, "by_shop") == [("x", 5, 1), ("y", 7, 1)]
    assert rows(spark, in_memory, home, "best") == [(7,)]
    (home / "data" / "orders" / "b.csv").write_text("id,shop,amount\n4,x,9\n5,x,0\n")
    result = call("run", "shop", "--select", "tag:nightly unpaid")
    assert result.exit_code == 0, result.output
    assert "paid: read as it is, at epoch 1, not at version 1 of source orders\n" in result.stdout
    assert "2 nothing to do, 1 read as it is; " in result.stdout
    assert "; not at the versions of this run, with what reads them: paid; " in result.stdout
    assert "all at one version" not in result.stdout
    assert rows(spark, in_memory, home, "by_shop") == [("x", 5, 1), ("y", 7, 1)]  # paid is as it was
    assert rows(spark, in_memory, home, "unpaid") == [(2,)]
    assert call("run", "shop", "-s", "+best", "--no-land").exit_code == 0
    shown = call("run", "shop", "-s", "best", "--no-land").stdout
    assert "by_shop: read as it is, at epoch 2\n" in shown and "; all at one version of 1 source; " in shown
    assert rows(spark, in_memory, home, "best") == [(14,)]
    shown = call("dry-run", "shop", "--select", "paid+1").stdout.splitlines()
    assert [line.partition(":")[0] for line in shown] == ["paid", "by_shop", "selected"]
    assert "reads orders" in shown[0] and shown[-1] == "selected: 2 of 4 datasets"
    assert "Did you mean `paid`?" in call("run", "shop", "--select", "payd").stderr
    assert '"best": 14' in call("show", "shop/best", "--json").stdout
    assert call("verify", "shop/by_shop").exit_code == 0
    check_verification(monkeypatch)
    maintained = call("maintain", "shop", "--json")
    assert maintained.exit_code == 0, maintained.output
    maintained = json.loads(maintained.stdout)
    assert {each["view"] for each in maintained} == QUERIES.keys()
    assert call("show", "shop", "--quarantine", "orders").exit_code == 0
    assert "deltafold run shop --select best" in call("run", "shop/best").stderr
    assert "/warehouse/views/best/" in call("path", "shop/best").stdout
    assert "Did you mean `best`?" in call("show", "shop/bst").stderr
    with pytest.raises(DeclarationError, match=r"it has datasets\. Name one, shop/DATASET"):
        catalogue.load("shop")


def check_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    """All datasets are compared, or those that are selected; one that differs is named, and fails."""
    equal = call("verify", "shop", "--json")
    facts = json.loads(equal.stdout)
    assert equal.exit_code == 0 and facts["datasets"].keys() == QUERIES.keys() and not facts["errors"]
    assert [line.partition(":")[0] for line in call("verify", "shop", "-s", "+by_shop").stdout.splitlines()] == [
        "paid", "by_shop",
    ]  # fmt: skip
    assert call("verify", "shop/best", "--select", "best").exit_code == exit_codes.USAGE
    verify = View.verify

    def differ(view: View, share: float = 1.0) -> Verification:
        if view.name == "unpaid":
            raise StateError("view unpaid: its answer is gone. Rebuild it.")
        return (
            replace(verify(view, share), ok=False, missing=1, sentence="")
            if view.name == "best"
            else verify(view, share)
        )

    monkeypatch.setattr(View, "verify", differ)
    shown = call("verify", "shop")
    assert shown.exit_code == exit_codes.UNEQUAL and "FAILED unpaid: view unpaid: its answer is gone" in shown.stdout
    assert call("verify", "shop", "--exclude", "best").exit_code == exit_codes.DATA
    monkeypatch.setattr(View, "verify", verify)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("datasets/orders.sql", "select 1", "there is a source `orders`, too"),
        ("datasets/Bad.sql", "select 1", "invalid name of a dataset"),
        ("datasets/empty.sql", "-- deltafold: policy=auto\n", "it is empty"),
        (
            "datasets/best.sql",
            "select 1\n-- deltafold: polcy=auto",
            "line 2: best: unknown option `polcy`. Did you mean",
        ),
        ("datasets/best.sql", "-- deltafold: policy=daily\nselect 1", "line 1: best: policy: "),
        ("datasets/by_shop.sql", "-- deltafold: tags=a\nselect 1", "line 1: by_shop: `tags` is declared twice"),
        ("datasets/best.sql", "-- deltafold: incremental\nselect 1", "line 1: best: `incremental` is not an option"),
        ("pipeline.yaml", DECLARATION.replace("by_shop:", "by_shp:"), "options.by_shp: there is no such dataset. Did"),
        ("pipeline.yaml", DECLARATION + "chunk: 2g\n", "`chunk` is for a pipeline of one query"),
        ("pipeline.yaml", DECLARATION + "check: {schedule: 0 4 * * *}\n", "`check.schedule` is for a pipeline of one"),
        ("pipeline.yaml", DECLARATION.replace("*.sql", "*.txt"), "there is no such file"),
        (
            "pipeline.yaml",
            "sources: {a: {view: b}}\ndatasets: datasets/*.sql\n",
            "sources.a.view: datasets cannot",
        ),
        ("query.sql", "select 1", "the pipeline has `datasets`, too"),
    ],
)
def test_refusals(home: Path, name: str, text: str, message: str) -> None:
    """Also where the project is described, without Spark."""
    (home / name).write_text(text)
    with pytest.raises(DeclarationError, match=re.escape(message)):
        folder_project.describe_project(home)
    try:
        project = folder_project.load_project(home)
        refusals = "\n".join((*project.refusals, *refuse_datasets(project.datasets)))
    except DeclarationError as error:
        refusals = str(error)
    assert message in refusals


def test_a_refused_dataset_stops_its_readers_alone(spark: SparkSession, in_memory: Lake, home: Path) -> None:
    """In a run; `dry-run` names every refusal at once, of the analysis and of a policy, and nothing is refreshed."""
    (home / "datasets" / "by_shop.sql").write_text("select * from by_shp")
    (home / "datasets" / "unpaid.sql").write_text("-- deltafold: policy=incremental\nselect * from orders limit 1")
    (home / "datasets" / "empty.sql").write_text("")
    checked = call("dry-run", "shop")
    assert checked.exit_code == exit_codes.USAGE
    assert "best: query: it reads by_shop, which is refused. Correct that." in checked.stdout.splitlines()
    assert [line.partition(".sql")[0].rpartition("/")[-1] for line in checked.stderr.splitlines()[-3:]] == [
        "by_shop",
        "empty",
        "unpaid",
    ]
    result = call("run", "shop")
    assert result.exit_code == exit_codes.USAGE
    shown = {line.partition(".sql")[0].rpartition("/")[-1]: line for line in result.stdout.splitlines()}
    assert (
        "by_shop.sql, line 1: by_shop: failed with QueryError: query: it reads by_shp, which is not a" in result.stdout
    )
    assert "Did you mean `by_shop`?" in result.stdout
    assert "unpaid: failed with RefusedError: " in shown["unpaid"] and "Instead: add ORDER BY" in shown["unpaid"]
    assert "empty.sql, line 1: empty: failed with QueryError: it is empty. Write the query there." in result.stdout
    assert "best: skipped because by_shop failed" in result.stdout
    assert "1 refreshed, 3 failed, 1 skipped" in result.stdout
    assert len(json.loads(call("show", "shop/paid", "--json").stdout)) == 2
    assert "by_shop.sql, line 1: by_shop: query: it reads by_shp" in call("show", "shop/by_shop").stderr
    states = {row["name"]: row["state"] for row in json.loads(call("status", "--json").stdout)}
    assert states == {
        "shop/best": "failing",
        "shop/by_shop": "failing",
        "shop/empty": "failing",
        "shop/paid": "up to date",
        "shop/unpaid": "failing",
    }
    assert "5 datasets: best, by_shop, empty, paid, unpaid" in call("list").stdout
    for name, files in (("nothing", "none/*.sql"), ("names", "*.sql")):
        other = home.parent / name
        other.mkdir()
        (other / "pipeline.yaml").write_text(f"sources: {{}}\ndatasets: '{files}'\n")
        (other / "Bad.sql").write_text("select 1")
    shown = call("status", "--json")  # an invalid one beside it
    states |= {"nothing": "invalid declaration", "names": "invalid declaration"}
    assert {row["name"]: row["state"] for row in json.loads(shown.stdout)} == states
    assert shown.exit_code == exit_codes.USAGE


def test_a_source_that_cannot_be_landed_stops_its_readers_alone(
    spark: SparkSession, in_memory: Lake, home: Path
) -> None:
    """Whether it was landed before or not."""
    stores = '  stores:\n    files: {path: data/stores, format: csv, schema: "shop STRING, town STRING"}\n'
    (home / "pipeline.yaml").write_text(DECLARATION.replace("policy: auto\n", f"{stores}policy: auto\n"))
    (home / "datasets" / "towns.sql").write_text("select town, count(*) n from stores group by town")
    (home / "datasets" / "sold.sql").write_text("select town, total from by_shop join stores using (shop)")
    for repeated in range(2):
        result = call("run", "shop")
        assert result.exit_code == exit_codes.DATA
        assert "FAILED stores: failed with SourceError: " in result.stdout
        assert "sold: skipped because stores failed" in result.stdout
        assert "towns: skipped because stores failed" in result.stdout
        done = "4 refreshed" if not repeated else "4 nothing to do"
        assert f"7 datasets: {done}, 1 failed, 2 skipped" in result.stdout
    (home / "data" / "stores").mkdir()
    (home / "data" / "stores" / "a.csv").write_text("shop,town\nx,Oslo\n")
    assert call("run", "shop").exit_code == 0
    assert rows(spark, in_memory, home, "sold") == [("Oslo", 5)]
    (home / "data" / "stores" / "a.csv").unlink()
    (home / "data" / "stores").rmdir()
    result = call("run", "shop")
    assert "2 skipped" in result.stdout and result.exit_code == exit_codes.DATA


def test_datasets_in_a_cycle_stop_their_readers_alone(spark: SparkSession, in_memory: Lake, home: Path) -> None:
    (home / "datasets" / "by_shop.sql").write_text("select best total, count(*) n from best group by best")
    result = call("run", "shop")
    assert result.exit_code == exit_codes.USAGE
    assert "the datasets read each other in a cycle (best → by_shop → best). Remove one." in result.stdout
    assert "2 refreshed, 1 failed, 1 skipped" in result.stdout


def test_a_run_starts_java_by_what_the_last_one_read(
    spark: SparkSession, in_memory: Lake, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its second compiler once there are states, unless all is read again or the last run read much."""
    brief = list[bool]()

    def start(*_: object, **options: Any) -> SparkSession:
        brief.append(options["brief"])
        return spark

    monkeypatch.setattr(session, "start", start)
    call("run", "shop")
    call("run", "shop", "--select", "paid")
    call("run", "shop", "--select", "paid", "--full-refresh-all")
    monkeypatch.setattr(project, "FEW_ROWS", 0)
    call("run", "shop", "--select", "paid")
    assert brief == [False, True, False, False]
