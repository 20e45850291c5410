"""Pipelines over pipelines: how they are declared, what is refused, and what a run of the upper one does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from deltafold.algebra.errors import DeltafoldError, QueryError, RefusedError
from deltafold.cli import commands as cli
from deltafold.lake.protocol import Lake
from deltafold.pipelines import catalogue, queries
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.pipeline import Pipeline
from tests.pipelines.declared import MINIMAL, write


def reading(folder: Path, name: str, *below: str, sql: str = "select count(*) n from {0}") -> Path:
    sources = "sources:\n" + "".join(f"  {view}: {{view: {view}}}\n" for view in below)
    return write(folder, name, sources, sql=sql.format(*below))


def test_a_chain_is_loaded_whole(tmp_path: Path) -> None:
    write(tmp_path, "shop")
    reading(tmp_path, "left", "shop")
    reading(tmp_path, "right", "shop")
    reading(tmp_path, "top", "left", "right")
    top = catalogue.load("top", tmp_path)
    assert [each.name for each in top.chain] == ["shop", "left", "right"]
    assert top.below["left"].below["shop"].landed == ("sales",)
    assert set(catalogue.survey_pipelines(tmp_path)) == {"left", "right", "shop", "top"}


@pytest.mark.parametrize(
    ("edges", "says"),
    [
        ({"a": "a"}, r"a/pipeline.yaml: sources.a.view: the pipelines read each other's views in a cycle \(a → a\)"),
        ({"a": "b", "b": "c", "c": "a"}, r"c/pipeline.yaml: .* in a cycle \(a → b → c → a\). Remove one"),
        ({"a": "b", "b": "c", "c": "b"}, r"in a cycle \(b → c → b\)"),
        ({"a": "shpo"}, r"sources.shpo.view: no pipeline `shpo` in .*\. Did you mean `shop`\?"),
        ({"a": "Shop"}, "invalid pipeline name `Shop`. Use a small letter"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, edges: dict[str, str], says: str) -> None:
    write(tmp_path, "shop")
    for name, below in edges.items():
        reading(tmp_path, name, below.lower()).joinpath("pipeline.yaml").write_text(
            f"sources:\n  {below.lower()}: {{view: {below}}}\n"
        )
    with pytest.raises(DeclarationError, match=says):
        catalogue.load("a", tmp_path)
    assert not isinstance(catalogue.survey_pipelines(tmp_path)["shop"], DeclarationError)


def test_each_pipeline_is_loaded_and_opened_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """Ten diamonds one above the other have a thousand ways through them, and thirty-one pipelines."""
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path))
    write(tmp_path, "d0")
    for i in range(10):
        reading(tmp_path, f"left{i}", f"d{i}")
        reading(tmp_path, f"right{i}", f"d{i}")
        reading(tmp_path, f"d{i + 1}", f"left{i}", f"right{i}")
    loaded: list[Path] = []
    read = catalogue.parsing.read_declaration
    monkeypatch.setattr(
        catalogue.parsing, "read_declaration", lambda path, *rest: loaded.append(path) or read(path, *rest)
    )
    found = catalogue.survey_pipelines()
    assert len(loaded) == len(set(loaded)) == len(found) == 31
    top = found["d10"]
    assert isinstance(top, Pipeline)
    assert len(top.chain) == 30
    ran: list[str] = []
    runnable = queries.runnable
    monkeypatch.setattr(catalogue.queries, "runnable", lambda query: ran.append(str(query.path)) or runnable(query))
    assert call("status", "--json").exit_code == 0
    assert len(ran) == len(set(ran)) == 31


def test_a_pipeline_that_is_wrong_is_told_once_for_each_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sentence, for which its declaration is read once."""
    write(tmp_path, "shop", "sources: 3\n")
    reading(tmp_path, "left", "shop")
    reading(tmp_path, "top", "left")
    loaded: list[Path] = []
    read = catalogue.parsing.read_declaration
    monkeypatch.setattr(
        catalogue.parsing, "read_declaration", lambda path, *rest: loaded.append(path) or read(path, *rest)
    )
    found = catalogue.survey_pipelines(tmp_path)
    assert len(loaded) == 3
    assert isinstance(found["shop"], DeclarationError)
    assert str(found["top"]) == str(found["left"]) == str(found["shop"])


def test_a_view_is_not_invariant(tmp_path: Path) -> None:
    write(tmp_path, "shop")
    write(tmp_path, "top", "sources:\n  shop: {view: shop, invariant: true}\n")
    with pytest.raises(
        DeclarationError, match=r"line 2: sources.shop: a view cannot be invariant: it changes with its sources. Remove"
    ):
        catalogue.load("top", tmp_path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, arguments)


def test_a_run_lands_and_refreshes_what_lies_below_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession, in_memory: Lake
) -> None:
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path))
    shop = write(tmp_path, "shop", MINIMAL, sql="select day, count(*) n from sales group by day")
    reading(tmp_path, "top", "shop", sql="select n, count(*) days from shop group by n")
    data = shop / "data"
    data.mkdir()
    (data / "one.csv").write_text("id,day\n1,2024-01-01\n2,2024-01-02\n")
    first = call("run", "top")
    assert first.exit_code == 0, first.output
    said = [line for line in first.stdout.splitlines() if not line.startswith("  seconds")]
    assert [line.split(",")[0].split(" (")[0] for line in said] == [
        "sales: 1 partition landed",
        "shop: epoch 1 applied",
        "  source versions: sales - to 0",
        "top: epoch 1 applied",
        "  source versions: view shop - to 0",
    ]
    assert {row["name"]: row["state"] for row in json.loads(call("status", "--json").stdout)} == {
        "shop": "up to date",
        "top": "up to date",
    }
    (data / "two.csv").write_text("id,day\n3,2024-01-02\n")
    held = json.loads(call("run", "top", "--no-land", "--json").stdout)
    assert (held["report"]["verdict"], held["below"]) == ("nothing to do", {"shop": []})
    assert call("run", "shop").exit_code == 0
    assert [row["state"] for row in json.loads(call("status", "--json").stdout)] == ["up to date", "behind"]
    told = json.loads(call("run", "top", "--json").stdout)
    assert [each["verdict"] for each in told["report"]["below"]] == ["nothing to do"]
    assert json.loads(call("show", "top", "--json").stdout) == [{"n": 1, "days": 1}, {"n": 2, "days": 1}]
    assert call("verify", "top").exit_code == 0


def test_an_error_about_a_query_begins_with_its_file_and_pipeline(
    tmp_path: Path, in_memory: Lake, spark: SparkSession
) -> None:
    """Of several pipelines in one run or step, and of those that another one reads."""
    folder = tmp_path / "pipelines"
    home = write(folder, "shop", "sources: {}\n", sql="SELECT nothing")
    write(folder, "top", "sources:\n  shop: {view: shop}\n", sql="SELECT count(*) AS n FROM shop")
    limited = write(folder, "limited", "sources: {}\n", sql="SELECT * FROM range(9) LIMIT 3")
    cases = {"shop": home, "top": home, "limited": limited}
    said: dict[str, DeltafoldError] = {}
    for name in cases:
        view = catalogue.open(catalogue.load(name, folder), spark)[1]
        with pytest.raises((QueryError, RefusedError)) as raised:
            view.refresh()
        said[name] = raised.value
        cited = cases[name] / "query.sql"
        assert str(said[name]).startswith(f"{cited}: {cases[name].name}: ") and str(said[name]).count(str(cited)) == 1
        assert said[name].logged == str(said[name])
    assert "Spark cannot analyse the query at line 1, column 8: " in str(said["top"])
    assert isinstance(said["limited"], RefusedError) and said["limited"].node == "limit 3"
