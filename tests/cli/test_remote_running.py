"""The command line and Dagster on a warehouse at a URI: what a pipeline does on a local one, and nothing left here."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from deltafold.cli import exit_codes
from deltafold.lake.remote import objects
from deltafold.pipelines import catalogue
from tests.cli.calling import answer, call
from tests.dagster.shown import located, outdated
from tests.night import night

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")


@pytest.fixture
def remote(home: Path, mount: str) -> Path:
    """The folder of a new pipeline `shop` whose warehouse is in a store."""
    with (home / "pipeline.yaml").open("a") as declaration:
        declaration.write(f"warehouse: {mount}\n")
    return home


def test_a_pipeline_keeps_its_warehouse_in_a_store(remote: Path, mount: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lands, refreshes and follows; Dagster knows of it; the only files here are notes about it."""
    monkeypatch.setenv("DAGSTER_HOME", str(remote.parent))
    (remote.parent / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    unloaded = call("path", "shop")
    assert unloaded.exit_code == exit_codes.DATA and "deltafold run shop" in unloaded.stderr
    assert json.loads(call("run", "shop", "--json").stdout)["report"]["verdict"] == "applied"
    (remote / "data" / "sales" / "day=2024-05-02" / "sales.csv").unlink()
    assert "sales: 1 partition removed" in call("run", "shop").stdout
    shown = answer()
    assert shown["Oslo", "tea"] == (2, "7.30") and ("Rome", "tea") not in shown
    assert call("path", "shop").stdout.strip() == f"{mount}/shop/views/shop/answer"
    assert json.loads(call("status", "--json").stdout)[0]["state"] == "up to date"
    assert sorted(each.name for each in (remote.parent.parent / ".warehouse").iterdir()) == [
        "shop.description.json",
        "shop.reporting.lock",
    ]
    with dg.DagsterInstance.get() as instance:
        assert instance.fetch_materializations(dg.AssetKey("shop"), limit=9).records
        assert outdated(located(catalogue.load("shop")), instance) == {}


@night
def test_upkeep_and_the_way_back(remote: Path) -> None:
    call("run", "shop")
    (remote / "data" / "sales" / "day=2024-05-02" / "sales.csv").unlink()
    call("run", "shop")
    assert call("verify", "shop").exit_code == 0
    assert call("rollback", "shop", "1").exit_code == 0
    assert answer()["Rome", "tea"] == (1, "1.80")
    assert call("maintain", "shop", "--retain", "0").exit_code == 0


@night
def test_a_branch_is_beside_it(remote: Path, mount: str) -> None:
    """It starts from the same epoch, and has the landed tables of the original as its sources."""
    call("run", "shop")
    assert call("branch", "shop", "dev").exit_code == 0
    assert call("verify", "dev").exit_code == 0
    assert call("path", "dev").stdout.strip() == f"{mount}/dev/views/dev/answer"
    (remote.with_name("dev") / "query.sql").write_text("SELECT count(*) AS n FROM sales")
    assert call("rebuild", "dev").exit_code == 0
    assert json.loads(call("show", "dev", "--json").stdout) == [{"n": 9}]


@pytest.mark.parametrize("admits", [1, 2])
def test_doctor_tries_the_store(remote: Path, mount: str, monkeypatch: pytest.MonkeyPatch, admits: int) -> None:
    """Protects from a store that lets two writers win, whose scheme says nothing of it."""
    if admits == 2:
        monkeypatch.setattr(objects, "put_if_absent", lambda *_, **__: True)
    told = call("doctor", "shop")
    [store] = [line for line in told.stdout.splitlines() if mount in line and "in a store" not in line]
    if admits == 1:
        assert told.exit_code == 0 and store.startswith("ok ") and "the second was refused" in store
    else:
        assert told.exit_code == exit_codes.UNEXPECTED and store.startswith("FAIL ")
        assert "two processes could both commit the same version there" in store
