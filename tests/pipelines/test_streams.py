"""A pipeline over a stream: declared, run, replayed, shown and branched."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from assets import factory, keys
from assets.automation import arrivals
from assets.resources import SparkResource
from pipelines import catalogue, cli
from pipelines.commands import branching
from tests.pipelines.declared import write

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

CLICKS = """\
sources:
  clicks:
    stream:
      format: json
      path: in
      schema: id INT, page STRING
      malformed: quarantine
warehouse: warehouse
"""
PAGES = "SELECT page, count(*) AS n FROM clicks GROUP BY page"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, arguments)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a pipeline `clicks`."""
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path))
    home = write(tmp_path, "clicks", CLICKS, sql=PAGES)
    (home / "in").mkdir()
    return home


def test_commands_land_a_stream(home: Path, spark: SparkSession) -> None:
    """Protects from a replay of a stream that nobody named, and from a landing that says nothing of what arrived."""
    (home / "in" / "a.json").write_text('{"id":1,"page":"a"}\n{"id":2,"page":"a"}\nbad\n')
    lines = call("run", "clicks").stdout.splitlines()
    assert lines[0].startswith("clicks: 2 rows landed, 1 malformed row left out, 1 row in quarantine (")
    assert call("run", "clicks").stdout.splitlines()[0] == "clicks: no new rows, 1 row in quarantine"
    assert "not a record" in call("show", "clicks", "--quarantine", "clicks").stdout
    refused = call("replay", "clicks")
    assert (refused.exit_code, "name it: --source clicks." in refused.output) == (2, True)
    (home / "in" / "a.json").write_text('{"id":1,"page":"a"}\n')
    (landing,) = json.loads(call("replay", "clicks", "--source", "clicks", "--json").stdout)
    assert (landing["rows"], landing["quarantined"]) == (1, {})
    assert json.loads(call("status", "--json").stdout)[0]["state"] == "behind"
    call("run", "clicks")
    assert json.loads(call("show", "clicks", "--json").stdout) == [{"page": "a", "n": 1}]
    assert call("verify", "clicks").exit_code == 0


def test_dagster_lands_a_stream(home: Path, spark: SparkSession) -> None:
    """Protects from a run that refreshes without what has arrived."""
    pipeline = catalogue.load("clicks", home.parent)
    defined = factory.build({"clicks": pipeline}, {}, SparkResource())
    before = arrivals.look(pipeline, datetime.now(UTC))
    (home / "in" / "a.json").write_text('{"id":1,"page":"a"}\n')
    assert arrivals.changed_keys(before, arrivals.look(pipeline, datetime.now(UTC))) == ["*"]
    instance = dg.DagsterInstance.ephemeral()
    assert defined.resolve_job_def("clicks_update").execute_in_process(instance=instance).success
    event = instance.get_latest_materialization_event(keys.landed("clicks", "clicks"))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.metadata["rows landed"].value == 1
    _, view = catalogue.open(pipeline, spark)
    assert [tuple(row) for row in view.answer().collect()] == [("a", 1)]


def test_a_branch_reads_the_landed_stream(home: Path) -> None:
    text = branching.declaration(catalogue.load("clicks", home.parent))
    write(home.parent, "dev", text, sql=PAGES)
    dev = catalogue.load("dev", home.parent)
    assert dev.declaration.sources["clicks"].delta == str(home / "warehouse" / "clicks" / "sources" / "clicks")
    assert dev.landed == ()


def test_the_doctor_looks_for_the_folder(home: Path) -> None:
    pipeline = catalogue.load("clicks", home.parent)
    found = {each.name: each.ok for each in catalogue.examine_setup(pipeline)}
    assert found["stream"]
    (home / "in").rmdir()
    (finding,) = [each for each in catalogue.examine_setup(pipeline) if each.name == "stream"]
    assert not finding.ok
    assert finding.sentence == f"The folder {home}/in of the stream clicks does not exist. Create it."
