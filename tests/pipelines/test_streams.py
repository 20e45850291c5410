"""A pipeline over a stream: declared, run, replayed, shown and branched."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from deltafold.api import Stream
from deltafold.cli import commands as cli
from deltafold.cli import exit_codes, scaffold
from deltafold.dagster import automation
from deltafold.lake.protocol import Lake
from deltafold.pipelines import catalogue
from deltafold.pipelines.catalogue import declaration_row
from deltafold.pipelines.declaration.parsing import DeclarationError
from tests.dagster.shown import located
from tests.night import night
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


@night
def test_commands_land_a_stream(in_memory: Lake, home: Path, spark: SparkSession) -> None:
    """Protects from a replay of a stream that nobody named, and from a landing that says nothing of what arrived."""
    (home / "in" / "a.json").write_text('{"id":1,"page":"a"}\n{"id":2,"page":"a"}\nbad\n')
    lines = call("run", "clicks").stdout.splitlines()
    assert lines[0].startswith("clicks: 2 rows landed, 1 malformed row left out, 1 row in quarantine (")
    assert call("run", "clicks").stdout.splitlines()[0] == "clicks: no new rows, 1 row in quarantine"
    assert "not a record" in call("show", "clicks", "--quarantine", "clicks").stdout
    refused = call("replay", "clicks")
    assert (refused.exit_code, "name it: --source clicks." in refused.output) == (2, True)
    (home / "in" / "a.json").write_text('{"id":1,"page":"a"}\n')
    replay = ("replay", "clicks", "--source", "clicks", "--json")
    refused = call(*replay)
    assert (refused.exit_code, "replay it with --allow-loss" in refused.output) == (exit_codes.DATA, True)
    (landing,) = json.loads(call(*replay, "--allow-loss").stdout)
    assert (landing["rows"], landing["quarantined"]) == (1, {})
    assert json.loads(call("status", "--json").stdout)[0]["state"] == "behind"
    call("run", "clicks")
    assert json.loads(call("show", "clicks", "--json").stdout) == [{"page": "a", "n": 1}]
    assert call("verify", "clicks").exit_code == 0


def test_dagster_lands_a_stream(in_memory: Lake, home: Path, spark: SparkSession) -> None:
    """Protects from a run that refreshes without what has arrived."""
    pipeline = catalogue.load("clicks", home.parent)
    defined = located(pipeline)
    before = automation.signatures_of(pipeline, datetime.now(UTC))
    (home / "in" / "a.json").write_text('{"id":1,"page":"a"}\n')
    assert automation.changed_keys(before, automation.signatures_of(pipeline, datetime.now(UTC))) == ["*"]
    instance = dg.DagsterInstance.ephemeral()
    assert defined.resolve_job_def("clicks_update").execute_in_process(instance=instance).success
    event = instance.get_latest_materialization_event(dg.AssetKey(["clicks", "landed", "clicks"]))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.metadata["rows landed"].value == 1
    _, view = catalogue.open(pipeline, spark)
    assert [tuple(row) for row in view.answer().collect()] == [("a", 1)]


def test_a_branch_reads_the_landed_stream(home: Path) -> None:
    text = scaffold.declaration(catalogue.load("clicks", home.parent))
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


KAFKA = """\
sources:
  clicks:
    stream:
      format: kafka
      schema: id INT, page STRING
      options:
        kafka.bootstrap.servers: ${SERVERS:-localhost:9092}
        kafka.sasl.jaas.config: ${LOGIN}
        subscribe: clicks
      key: id
warehouse: warehouse
"""


def test_secrets_of_kafka_are_read_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from passwords in listings, and from a login that is missing without a word."""
    write(tmp_path, "clicks", KAFKA, sql=PAGES)
    pipeline = catalogue.load("clicks", tmp_path)
    monkeypatch.setenv("LOGIN", 'login required password="hunter2";')
    stream = catalogue.declare(pipeline.declaration.sources["clicks"])
    assert isinstance(stream, Stream)
    assert stream.options["kafka.sasl.jaas.config"].endswith('password="hunter2";')
    assert (stream.options["kafka.bootstrap.servers"], stream.key) == ("localhost:9092", "id")
    assert "hunter2" not in json.dumps(declaration_row("clicks", pipeline))
    monkeypatch.delenv("LOGIN")
    with pytest.raises(DeclarationError, match=r"option `kafka.sasl.jaas.config` of a stream: .* LOGIN is not set"):
        catalogue.declare(pipeline.declaration.sources["clicks"])
    (finding,) = [each for each in catalogue.examine_setup(pipeline) if each.name == "stream"]
    assert finding.sentence.startswith("Source clicks is a stream of Kafka, whose connector ")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("${LOGIN}", 'password="hunter2";', "`kafka.sasl.jaas.config` looks like a secret, which does not belong"),
        ("key: id", "key: user", "`key` names `user`, not a column of the schema"),
        ("        subscribe: clicks\n", "", "a stream of kafka has one of the options `subscribe`"),
    ],
)
def test_invalid_streams_of_kafka(tmp_path: Path, old: str, new: str, says: str) -> None:
    write(tmp_path, "clicks", KAFKA.replace(old, new), sql=PAGES)
    with pytest.raises(DeclarationError, match=says) as found:
        catalogue.load("clicks", tmp_path)
    assert "hunter2" not in str(found.value)
