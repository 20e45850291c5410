"""Finding and loading pipelines, without Spark, and making new ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deltafold.cli import scaffold
from deltafold.pipelines import catalogue, queries
from deltafold.pipelines.declaration.parsing import DeclarationError
from tests.pipelines.declared import MINIMAL, PARTITIONED, write

CHECKOUT = Path(__file__).parents[2]
FUNCTION = "def query(sales):\n    return sales\n"


def test_a_pipeline_is_a_folder_with_a_declaration_and_one_query(tmp_path: Path) -> None:
    write(tmp_path / "pipelines", "shop")
    write(tmp_path / "pipelines", "bar", py=FUNCTION)
    (tmp_path / "pipelines" / "notes").mkdir()
    bar, shop = catalogue.load_all(tmp_path / "pipelines")
    assert (bar.name, bar.query.function, shop.name, shop.query.function) == ("bar", True, "shop", False)
    assert shop.warehouse == f"{tmp_path}/.warehouse/shop"
    assert (shop.landed, shop.partitioned) == (("sales",), ())


def test_each_pipeline_has_its_own_folder_in_a_shared_warehouse(tmp_path: Path) -> None:
    write(tmp_path, "shop", MINIMAL + "warehouse: /srv/state/\n")
    assert catalogue.load("shop", tmp_path).warehouse == "/srv/state/shop"


def test_a_function_is_that_of_the_file_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from what Python compiled of a file of the same size and time, as images with fixed times have it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write(tmp_path, "shop", py="def query(sales):\n    return 1\n")
    file = tmp_path / "shop" / "query.py"
    for number in (1, 2):
        file.write_text(f"def query(sales):\n    return {number}\n")
        os.utime(file, (1_000_000_000, 1_000_000_000))
        function: Any = queries.runnable(catalogue.load("shop", tmp_path).query)
        assert function(None) == number
    assert sorted(each.name for each in file.parent.iterdir()) == ["pipeline.yaml", "query.py"]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            {"sql": "SELECT 1", "py": FUNCTION},
            "there are query.sql and query.py, and a pipeline has one query. Remove the others",
        ),
        ({"txt": ""}, "there is no query. Write query.sql, query.py or query.mrql"),
        ({"sql": " \n"}, "query.sql: it is empty"),
        ({"mrql": "select x\nfrm y;"}, "query.mrql:2:1: unexpected `frm`"),
        ({"py": "def query(sales:\n"}, "line 1: it is not Python"),
        ({"py": "x = 1\n"}, "it defines no function `query`"),
        (
            {"py": "def query(sales, sails):\n    pass\n"},
            "line 1: `sails` is not a declared source. Did you mean `sales`?",
        ),
        ({"py": "def query(*, shops):\n    pass\n"}, "`shops` is not a declared source. Known are sales."),
    ],
)
def test_wrong_queries(tmp_path: Path, written: dict[str, str], said: str) -> None:
    write(tmp_path, "shop", **written)
    with pytest.raises(DeclarationError) as caught:
        catalogue.load("shop", tmp_path)
    assert said in str(caught.value)


def test_a_query_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"nope\.sql: there is no such file\. Correct its name"):
        queries.read(tmp_path / "nope.sql", ())
    (tmp_path / "latin.sql").write_bytes(b"SELECT '\xe9'")
    with pytest.raises(DeclarationError, match=r"latin\.sql: it is not UTF-8 text\. Save it as UTF-8"):
        queries.read(tmp_path / "latin.sql", ())


def test_what_belongs_to_mrql_is_refused_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, "shop", MINIMAL + "args: [1]\n")
    with pytest.raises(DeclarationError, match=r"query.sql: `args` is for query.mrql. Remove it"):
        catalogue.load("shop", tmp_path)


@pytest.mark.parametrize(
    "function", ["def query(*, sales):", "def query(sales, extra=1):", "def query(**tables):", "def query(sales, /):"]
)
def test_parameters_that_are_fine(tmp_path: Path, function: str) -> None:
    write(tmp_path, "shop", py=f"{function}\n    return 1\n")
    assert callable(queries.runnable(catalogue.load("shop", tmp_path).query))


def test_a_query_file_that_fails_is_a_mistake_of_the_declaration(tmp_path: Path) -> None:
    home = write(tmp_path, "shop", py="1 / 0\n" + FUNCTION)
    with pytest.raises(DeclarationError, match=f"{home}/query.py: loading it fails: ZeroDivisionError.*Correct it"):
        queries.runnable(catalogue.load("shop", tmp_path).query)


@pytest.mark.parametrize(
    "name", ["", "Shop", "1shop", "../shop", "shop/..", "a b", "a;b", "a'b", "x" * 64, "é", "shop\n"]
)
def test_hostile_names_are_refused(tmp_path: Path, name: str) -> None:
    for attempt in (lambda: catalogue.load(name, tmp_path), lambda: scaffold.make(name, tmp_path)):
        with pytest.raises(DeclarationError, match=r"Use a small letter followed by"):
            attempt()
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_pipeline_is_answered_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, "shop")
    with pytest.raises(DeclarationError, match=r"pipeline `shp`: not found in .*\. Did you mean `shop`\?"):
        catalogue.load("shp", tmp_path)


def test_in_a_folder_without_pipelines_the_next_step_is_shown(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"pipeline `shop`: not found in .*: run deltafold new shop, or give"):
        catalogue.load("shop", tmp_path)


def test_a_declaration_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "shop" / "pipeline.yaml").mkdir(parents=True)
    with pytest.raises(DeclarationError, match=r"shop/pipeline\.yaml: it is a folder\. Put a file"):
        catalogue.load("shop", tmp_path)


def test_a_bad_pipeline_does_not_hide_the_others(tmp_path: Path) -> None:
    write(tmp_path, "good")
    write(tmp_path, "bad", "sources: 1\n")
    found = catalogue.survey_pipelines(tmp_path)
    assert isinstance(found["bad"], DeclarationError)
    assert isinstance(found["good"], catalogue.Pipeline)
    with pytest.raises(DeclarationError):
        catalogue.load_all(tmp_path)


def test_partitions_are_checked_against_the_declaration(tmp_path: Path) -> None:
    write(tmp_path, "shop")
    write(tmp_path, "cut", PARTITIONED)
    write(tmp_path, "daily", PARTITIONED + "partitions: {kind: daily, start: 2024-01-01}\n")
    with pytest.raises(
        DeclarationError, match=r"shop has no partitions: none of its sources declares `partition_by`. Leave"
    ):
        catalogue.load("shop", tmp_path).check_partition("2024-01-01")
    with pytest.raises(
        DeclarationError, match=r"daily: 'x' is not a day: the partitions are daily. Write one such as 2024-01-01"
    ):
        catalogue.load("daily", tmp_path).check_partition("x")
    assert catalogue.load("cut", tmp_path).check_partition("x") == "x"


def test_a_file_is_no_folder_of_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(catalogue.FOLDER_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(DeclarationError, match=r"^--pipelines or DELTAFOLD_PIPELINES: .*/file is a file, not a folder"):
        catalogue.pipelines_folder()


def test_where_pipelines_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(catalogue.FOLDER_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    assert catalogue.pipelines_folder() == catalogue.home_of_new() == tmp_path / "pipelines"
    assert catalogue.survey_pipelines() == {}
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").touch()
    with pytest.raises(DeclarationError, match=r"pipelines: it is a Python package, not a folder of pipelines\. Name"):
        catalogue.home_of_new()
    write(tmp_path / "pipelines", "shop")
    assert catalogue.home_of_new() == tmp_path / "pipelines"
    assert catalogue.names() == ("shop",)
    monkeypatch.setenv(catalogue.FOLDER_VARIABLE, "elsewhere")
    with pytest.raises(
        DeclarationError, match=rf"DELTAFOLD_PIPELINES: there is no folder {tmp_path}/elsewhere\. Create"
    ):
        catalogue.pipelines_folder()
    (tmp_path / "elsewhere").mkdir()
    assert catalogue.pipelines_folder() == catalogue.home_of_new() == tmp_path / "elsewhere"


def test_a_new_pipeline_is_declared_well_and_touches_nothing(tmp_path: Path) -> None:
    home = scaffold.make("tea_shop", tmp_path)
    pipeline = catalogue.load("tea_shop", tmp_path)
    assert pipeline.landed == ("sales", "shops")
    assert pipeline.partitioned == ("sales",)
    (home / "query.sql").write_text("SELECT 1")
    with pytest.raises(DeclarationError, match=r"exists already. Choose another name"):
        scaffold.make("tea_shop", tmp_path)
    assert (home / "query.sql").read_text() == "SELECT 1"


def test_the_pipelines_that_come_along_are_declared_well() -> None:
    found = [pipeline.name for pipeline in catalogue.load_all(CHECKOUT / "pipelines")]
    assert found == ["airports", "flights", "routes"]


def test_loading_declarations_imports_no_spark() -> None:
    program = (
        "import sys\n"
        "from deltafold.pipelines import catalogue; from deltafold.cli import commands as cli\n"
        "catalogue.load_all()\n"
        "found = {'pyspark', 'py4j', 'delta', 'dagster', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=CHECKOUT)


def test_the_declaration_of_a_branch_reads_what_the_original_landed(tmp_path: Path) -> None:
    """Paths that began at the original's folder are written out, and nothing is landed or scheduled twice."""
    more = "  rates: {delta: rates, invariant: true}\npolicy: auto\nmaintain: '@weekly'\nschedule: '@daily'\n"
    more += "publish_as: db.shop\n"
    home = write(tmp_path / "pipelines", "shop", PARTITIONED + more + "partitions: {kind: daily, start: 2024-01-01}\n")
    text = scaffold.declaration(catalogue.load("shop", home.parent))
    write(home.parent, "dev", text)
    dev = catalogue.load("dev", home.parent)
    root = tmp_path / ".warehouse"
    assert {name: source.delta for name, source in dev.declaration.sources.items()} == {
        "sales": str(root / "shop" / "sources" / "sales"),
        "rates": str(home / "rates"),
    }
    assert dev.declaration.sources["rates"].invariant
    assert (dev.warehouse, dev.declaration.policy) == (str(root / "dev"), "auto")
    assert (dev.declaration.schedule, dev.declaration.maintain, dev.landed) == (None, None, ())
    assert dev.declaration.publish_as is None


def test_two_pipelines_cannot_be_published_under_one_name(tmp_path: Path) -> None:
    """Protects from a SQL view that shows the answer of whichever pipeline ran last."""
    for name, text in {"a": "", "b": "publish_as: db.v\n", "bad": "publish_as: [", "c": "publish_as: 7\n"}.items():
        write(tmp_path, name, MINIMAL + text)
    assert catalogue.load("b", tmp_path).declaration.publish_as == "db.v"
    write(tmp_path, "d", MINIMAL + "publish_as: DB.V\n")
    for name, other in (("b", ("`d`", "`DB.V`")), ("d", ("`b`", "`db.v`"))):
        with pytest.raises(DeclarationError) as caught:
            catalogue.load(name, tmp_path)
        said = str(caught.value)
        assert said.startswith(f"{tmp_path}/{name}/pipeline.yaml: publish_as: ")
        assert all(part in said for part in (*other, "Choose another name"))
