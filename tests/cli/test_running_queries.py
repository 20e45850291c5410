"""Queries of every language through the command line for real, and those that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deltafold.cli import exit_codes
from tests.cli.calling import answer, call
from tests.night import night


def test_a_query_of_dataframes(quick: Path) -> None:
    (quick / "query.sql").unlink()
    (quick / "query.py").write_text(
        "from pyspark.sql import functions as F\n\n\n"
        "def query(sales, shops):\n"
        "    joined = sales.join(shops, 'shop')\n"
        "    sums = F.count('*').alias('sales'), F.sum('amount').alias('revenue')\n"
        "    return joined.groupBy('city', 'product').agg(*sums)\n"
    )
    assert call("run", "shop").exit_code == 0
    assert answer()["Rome", "coffee"] == (3, "7.70")
    assert call("verify", "shop").exit_code == 0


@night
def test_a_query_in_mrql(quick: Path) -> None:
    made = call("new", "tea", "--mrql")
    assert made.exit_code == 0 and (quick.parent / "tea" / "query.mrql").is_file()
    assert call("run", "tea").exit_code == 0
    rows = json.loads(call("show", "tea", "--json").stdout)
    assert {(row["city"], row["product"]): row["revenue"] for row in rows}["Oslo", "tea"] == "10.50"
    explained = call("explain", "tea").stdout
    assert "MRQL became:" in explained and "collect_list" not in explained
    (quick.parent / "tea" / "data" / "sales" / "day=2024-05-02" / "sales.csv").unlink()
    assert call("run", "tea").exit_code == 0
    assert call("verify", "tea").exit_code == 0
    (quick.parent / "tea" / "query.mrql").write_text("select s.price from s in sales;\n")
    wrong = call("run", "tea")
    assert wrong.exit_code == exit_codes.USAGE
    assert "query.mrql:1:8: there is no field price in <id: long" in wrong.stderr


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT shop FROM sales LIMIT 1", exit_codes.REFUSED),
        ("SELECT amuont FROM sales", exit_codes.USAGE),
        ("SELECT * FROM nowhere", exit_codes.USAGE),
        ("not SQL at all", exit_codes.USAGE),
    ],
)
def test_queries_that_cannot_be(quick: Path, sql: str, code: int) -> None:
    (quick / "query.sql").write_text(sql)
    for command in ("explain", "run"):
        result = call(command, "shop")
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output


def test_a_refused_query_is_recomputed_under_auto_and_says_so(quick: Path) -> None:
    (quick / "query.sql").write_text("SELECT explode(sequence(1L, (SELECT count(*) FROM sales))) n")
    declaration = quick / "pipeline.yaml"
    declaration.write_text(declaration.read_text().replace("policy: incremental", "policy: auto"))
    assert json.loads(call("run", "shop", "--json").stdout)["report"]["verdict"] == "recomputed"
    assert call("verify", "shop").exit_code == 0


def test_a_changed_query_is_refused_until_it_is_rebuilt(quick: Path) -> None:
    call("run", "shop")
    changed = "SELECT c.city, count(*) AS sales FROM sales s JOIN shops c ON s.shop = c.shop GROUP BY c.city"
    (quick / "query.sql").write_text(changed)
    assert call("run", "shop").exit_code == exit_codes.REFUSED
    assert call("rebuild", "shop").exit_code == 0
    assert call("verify", "shop").exit_code == 0


def test_a_query_of_constants(quick: Path) -> None:
    """A pipeline without sources loads once, and then stands."""
    (quick / "query.sql").write_text("SELECT 1 AS x UNION ALL VALUES (2)")
    (quick / "pipeline.yaml").write_text("sources: {}\n")
    assert json.loads(call("run", "shop", "--json").stdout)["report"]["verdict"] == "applied"
    assert json.loads(call("run", "shop", "--json").stdout)["report"]["verdict"] == "nothing to do"
    for command in ("verify", "explain", "history", "maintain", "rebuild", "verify"):
        assert call(command, "shop").exit_code == 0
    assert json.loads(call("status", "--json").stdout)[0]["state"] == "up to date"
    rows = json.loads(call("show", "shop", "--json").stdout)
    assert sorted(row["x"] for row in rows) == [1, 2]


def test_a_decimal_sum_that_overflows_is_the_datas_fault(quick: Path) -> None:
    """Exit code 4, not 70, so that whoever is called knows that the data is to be corrected."""
    (quick / "query.sql").write_text("SELECT sum(id + CAST(9e37 AS DECIMAL(38, 0))) AS s FROM sales")
    result = call("run", "shop")
    assert result.exit_code == exit_codes.DATA and "overflow" in result.stderr


def test_a_query_may_leave_an_invariant_source_unused(quick: Path) -> None:
    (quick / "query.sql").write_text("SELECT product, count(*) AS sales FROM sales GROUP BY product")
    assert call("run", "shop").exit_code == 0
    assert call("verify", "shop").exit_code == 0
