"""The command line and the demo for real: new pipelines run at once, stay equal, and fail with the right exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from deltafold.cli import exit_codes
from deltafold.demo import demo
from deltafold.pipelines import catalogue
from tests.cli.calling import answer, call
from tests.dagster.shown import located, outdated
from tests.night import night
from tests.spark.machine import PROJECT

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")


def test_a_new_pipeline_runs_at_once_and_follows_its_files(home: Path) -> None:
    told = json.loads(call("run", "shop", "--json").stdout)
    assert [landing["rows"] for landing in told["landings"]] == [9, 3]
    assert told["report"]["verdict"] == "applied"
    assert answer()["Oslo", "tea"] == (3, "10.50")
    assert "nothing to do" in json.loads(call("run", "shop", "--json").stdout)["report"]["verdict"]

    sales = home / "data" / "sales"
    (sales / "day=2024-05-01" / "sales.csv").write_text("id,shop,product,amount\n1,n1,tea,3.30\n")
    (sales / "day=2024-05-04").mkdir()
    (sales / "day=2024-05-04" / "late.csv").write_text("id,shop,product,amount\n10,s1,cocoa,5.00\n")
    assert json.loads(call("status", "--json").stdout)[0]["state"] == "up to date"
    result = call("run", "shop")
    assert result.exit_code == 0
    assert "sales: 2 partitions landed, 2 rows, 2 unchanged" in result.stdout
    assert answer() == {
        ("Oslo", "coffee"): (2, "8.30"),
        ("Oslo", "tea"): (2, "6.50"),
        ("Rome", "coffee"): (1, "2.50"),
        ("Rome", "tea"): (1, "1.80"),
        ("Rome", "cocoa"): (1, "5.00"),
    }
    assert call("verify", "shop").exit_code == 0
    (sales / "day=2024-05-02" / "sales.csv").unlink()
    assert "sales: 1 partition removed" in call("run", "shop").stdout
    assert ("Rome", "tea") not in answer()
    assert call("verify", "shop").exit_code == 0
    assert [report["epoch"] for report in json.loads(call("history", "shop", "--json").stdout)] == [1, 2, 3]


def test_landing_one_partition_only(quick: Path) -> None:
    told = json.loads(call("run", "shop", "--partition", "2024-05-02", "--json").stdout)
    assert told["landings"][0]["landed"] == ["2024-05-02"]
    assert answer() == {("Oslo", "coffee"): (1, "3.90"), ("Oslo", "tea"): (1, "3.20"), ("Rome", "tea"): (1, "1.80")}
    assert call("verify", "shop").exit_code == 0


def test_backfilling_a_range(quick: Path) -> None:
    """Partitions outside the range wait; one run again changes nothing."""
    command = ("backfill", "shop", "--from", "2024-05-01", "--to", "2024-05-02", "--json")
    told = json.loads(call(*command).stdout)
    assert [landing["landed"] for landing in told["landings"] if landing["source"] == "sales"] == [
        ["2024-05-01", "2024-05-02"]
    ]
    assert json.loads(call(*command).stdout)["report"]["verdict"] == "nothing to do"
    assert call("verify", "shop").exit_code == 0


@night
def test_rebuilding_gives_the_same_answer(quick: Path) -> None:
    call("run", "shop")
    before = answer()
    assert call("rebuild", "shop").exit_code == 0
    assert answer() == before
    assert call("verify", "shop").exit_code == 0


@night
def test_upkeep_rollback_and_a_branch(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way back leaves a right answer, and Dagster shows what it is."""
    monkeypatch.setenv("DAGSTER_HOME", str(home.parent))
    (home.parent / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    call("run", "shop")
    first, sales = answer(), home / "data" / "sales"
    (sales / "day=2024-05-01" / "sales.csv").write_text("id,shop,product,amount\n1,n1,tea,3.30\n")
    told = json.loads(call("run", "shop", "--json").stdout)
    assert told["report"]["epoch"] == 2
    made = call("branch", "shop", "dev")
    assert made.stdout == "Created dev from the last epoch of shop. Change its query, then: deltafold rebuild dev\n"
    for taken_or_none in ("dev", "../dev", "x/y", ""):
        assert call("branch", "shop", taken_or_none).exit_code == exit_codes.USAGE
    assert call("verify", "dev").exit_code == 0
    result = call("rollback", "shop", "1")
    assert result.stdout.startswith("shop: back to epoch 1 of generation 1, as epoch 1 of generation 2, ")
    assert answer() == first
    told = json.loads(call("status", "--json").stdout)
    assert [(row["name"], row["state"]) for row in told] == [("dev", "up to date"), ("shop", "behind")]
    assert told[1]["lag"]["sales"]["versions"] == 1 and told[1]["lag"]["sales"]["rows"] > 0
    assert call("run", "shop").exit_code == 0
    assert call("maintain", "shop", "--retain", "0").stdout.startswith("shop: nothing to compact; ")
    (home.with_name("dev") / "query.sql").write_text("SELECT count(*) AS n FROM sales")
    assert call("rebuild", "dev").exit_code == 0
    for name in ("shop", "dev"):
        assert call("verify", name).exit_code == 0
    assert call("rollback", "shop", "9").exit_code == exit_codes.DATA
    with dg.DagsterInstance.get() as instance:
        assert outdated(located(catalogue.load("shop")), instance) == {}
        found = instance.fetch_materializations(dg.AssetKey("shop"), limit=9).records
    verdicts = [each.asset_materialization.metadata["verdict"].value for each in found if each.asset_materialization]
    assert verdicts == ["applied", "rolled back", "applied", "applied"]


def test_a_malformed_row_is_said_with_its_file(quick: Path) -> None:
    (quick / "data" / "sales" / "day=2024-05-02" / "sales.csv").write_text("id,shop,product,amount\n1,n1,tea,a lot\n")
    result = call("run", "shop")
    assert result.exit_code == exit_codes.DATA
    assert "sales.csv" in result.stderr
    assert "Traceback" not in result.output


def test_a_malformed_row_is_quarantined_where_that_is_declared(quick: Path) -> None:
    """Protects from rows that are left out without a word, in any of the places where people look."""
    declaration = quick / "pipeline.yaml"
    declaration.write_text(
        declaration.read_text().replace("format: csv\n", "format: csv\n      malformed: quarantine\n", 1)
    )
    (quick / "data" / "sales" / "day=2024-05-02" / "bad.csv").write_text("id,shop,product,amount\n1,n1,tea,a lot\n")
    assert "9 rows, 1 malformed row left out, 1 row in quarantine (" in call("run", "shop").stdout
    (row,) = json.loads(call("show", "shop", "--quarantine", "sales", "--json").stdout)
    assert (row["partition"], row["line"], row["row"]) == ("2024-05-02", 2, "1,n1,tea,a lot")
    assert row["reason"].startswith("a lot in amount is not a valid DECIMAL")
    assert "sales 1 row" in call("status").stdout
    assert call("verify", "shop").exit_code == 0
    assert call("show", "shop", "--quarantine", "nowhere").exit_code == exit_codes.USAGE


def test_before_anything_was_refreshed(quick: Path) -> None:
    assert call("show", "shop").exit_code == exit_codes.DATA
    assert call("verify", "shop").exit_code == exit_codes.DATA
    assert json.loads(call("status", "--json").stdout)[0]["state"] == "never refreshed"


@night
@pytest.mark.parametrize("lake", ["memory", "Delta"])
def test_the_demo_ends_equal(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    lake: str,
) -> None:
    """The answer is right, and Dagster shows every refresh, state and check of it, none of them outdated."""
    if lake == "memory":
        request.getfixturevalue("in_memory")
    monkeypatch.setenv("FLIGHTS_DATA", "replaced by the demo")
    monkeypatch.setattr(demo, "CORRECTED", "2013-01-01")
    monkeypatch.setattr(demo, "LATE", "2013-01-02")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (tmp_path / "kept.txt").touch()
    assert demo.play(tmp_path, lambda pipeline: spark, first=1, single=0)
    said = capsys.readouterr().out
    assert [line.split("  ")[0] for line in said.split("\ninput ")[1].splitlines()[2:5]] == [
        "first 1 days",
        "2013-01-01 again",
        "2013-01-02, late",
    ]
    assert said.count("equals the batch query") == 3 and "distance from the fixpoint" in said
    assert re.search(r"^journeys from or to [A-Z]{3}: [1-9]\d+ before, 0 now$", said, re.MULTILINE)
    cells = said.split("\ninput ")[1].splitlines()[2].split()
    assert all(float(seconds) >= 0 for seconds in cells[-3:])
    assert (tmp_path / demo.PICTURE).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "kept.txt").exists()
    assert "Dagster shows these refreshes: make ui" in said
    defined = located(catalogue.load("flights", demo.SHIPPED))
    with dg.DagsterInstance.get() as instance:
        assert outdated(defined, instance) == {}
        assert len(instance.get_materialized_partitions(dg.AssetKey(["flights", "landed", "flights"]))) == 2
        assert len(instance.fetch_materializations(dg.AssetKey("flights"), limit=9).records) == 4
        for name in demo.LOOP_PIPELINES:
            shown = instance.fetch_materializations(dg.AssetKey(name), limit=9).records
            materialised = [each.asset_materialization for each in shown]
            assert len(shown) == 2 and all(each and "rounds of loops" in each.metadata for each in materialised)


def test_the_readme_shows_the_columns_of_the_demo() -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    shown = next(line for line in readme.splitlines() if line.startswith("input "))
    assert re.split(r"  +", shown) == list(demo.HEADERS)


@night
def test_spark_is_silent_in_a_process_of_its_own(home: Path) -> None:
    command = [sys.executable, "-m", "deltafold.cli.commands", "run", "shop"]
    environment = os.environ | {"FORCE_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("shop: ") for line in done.stderr.splitlines()), done.stderr
    assert done.stdout.startswith("sales: 3 partitions landed, 9 rows")
    assert "\x1b" not in done.stdout + done.stderr
