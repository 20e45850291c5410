"""What machines are told of work: JSON lines and Prometheus' numbers, and no value of any row."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from deltafold import telemetry
from deltafold.algebra.errors import SourceError, UsageError
from deltafold.api import Delta, Files
from deltafold.lake.delta_table import DELTA
from deltafold.operations import metrics
from deltafold.spark.cache import SetupError
from deltafold.store.view_store import Store
from tests.sandbox import MemorySandbox

SECRET = "hunter2"
SAMPLE = re.compile(r'deltafold_(\w+)\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\} (\S+)')


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv(telemetry.LOG_VARIABLE, f"json:{path}")
    yield path
    for handler in [handler for handler in telemetry.LOGGER.handlers if handler.get_name() == telemetry.LOG_VARIABLE]:
        telemetry.LOGGER.removeHandler(handler)
        handler.close()
    telemetry.LOGGER.setLevel(logging.NOTSET)


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "collector"
    folder.mkdir()
    monkeypatch.setenv(metrics.METRICS_VARIABLE, str(folder))
    return folder


def told(log: Path) -> list[dict[str, Any]]:
    """The events since the last look."""
    found = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("")
    return found


def samples(folder: Path) -> dict[tuple[str, ...], float]:
    """Family and labels but view and warehouse → value; every line must be Prometheus'."""
    found: dict[tuple[str, ...], float] = {}
    for path in sorted(folder.iterdir()):
        assert path.suffix == ".prom"
        for line in path.read_text().splitlines():
            if not line.startswith(("# HELP ", "# TYPE ")):
                sample = SAMPLE.fullmatch(line)
                assert sample, line
                labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2]))
                assert labels.pop("view") and labels.pop("warehouse")
                found[sample[1], *labels.values()] = float(sample[3])
    return found


def test_refreshes_are_told_and_measured(sandbox: MemorySandbox, log: Path, numbers: Path) -> None:
    """Protects from operators who cannot see from outside what a refresh did, and from numbers that are not its own."""
    sandbox.source("sales", "shop string, amount int", [("Oslo", 3), ("Rome", 4)])
    view = sandbox.view("select shop, sum(amount) as total from sales group by shop")
    report = view.refresh()
    lines = told(log)
    assert [line["event"] for line in lines] == ["refresh begun", "epoch begun", "epoch finished", "refresh finished"]
    assert len({line["work"] for line in lines}) == 2
    for line in lines[2:]:
        kept = {name: line[name] for name in ("view", "epoch", "verdict", "rows_read", "jobs", "commits", "seconds")}
        assert kept == {name: getattr(report, name) for name in kept}
        assert line["versions"] == {"sales": [None, 0]}
    first = samples(numbers)
    assert first["epoch",] == first["refresh_success",] == first["epoch_verdict", "applied"] == 1
    assert (first["epoch_jobs",], first["epoch_rows_read",]) == (report.jobs, report.rows_read)
    assert first["table_files", "state_1"] == 1
    assert first["source_lag_versions", "sales"] == first["epoch_unfinished",] == 0

    sandbox.insert("sales", "shop string, amount int", [("Oslo", 5)])
    view.status()
    assert samples(numbers)["source_lag_rows", "sales"] == 1
    assert view.verify().ok
    assert told(log)[-1]["ok"] is True
    view.refresh()
    view.rebucket(2)
    view.rollback(1, generation=1)
    ended = [(line["event"], line["generation"]) for line in told(log) if line["event"].endswith("finished")]
    assert ended[-2:] == [("rebucket finished", 2), ("rollback finished", 3)]
    assert samples(numbers)["generation",] == 3
    view.drop()
    assert not list(numbers.iterdir())


def test_no_row_is_told(sandbox: MemorySandbox, log: Path, numbers: Path) -> None:
    """Protects from values of rows, which error messages show to people, in logs that are kept and shipped."""
    folder = sandbox.folder / "dropped"
    folder.mkdir()
    (folder / "a.csv").write_text(f"id\n1\n{SECRET}\n")
    sandbox.warehouse.source("dropped", Files(str(folder), "csv", "id int"))
    with pytest.raises(SourceError, match=SECRET):
        sandbox.warehouse.land("dropped")
    failed = told(log)[-1]
    assert (failed["event"], failed["source"], failed["error"]) == ("landing failed", "dropped", "SourceError")
    assert f"{folder / 'a.csv'}, line 3, does not fit the declared schema" in failed["sentence"]
    assert SECRET not in json.dumps(failed)

    sandbox.insert("users", "name string", [(SECRET,), (SECRET,)])
    sandbox.warehouse.source("users", Delta(sandbox.path("users"), primary_key=("name",)))
    sandbox.warehouse.source("people", Delta(sandbox.path("users")))
    with pytest.raises(SourceError, match=SECRET):
        sandbox.view("select count(*) as n from users", "unique").refresh()
    lines = told(log)
    assert [line["event"] for line in lines[2:]] == ["epoch failed", "refresh failed"]
    assert "(name = …)" in lines[-1]["sentence"]
    assert samples(numbers)["refresh_success",] == 0
    with pytest.raises(Exception, match=SECRET):
        sandbox.view(f"select cast(name as int) as n from people where name = '{SECRET}'", "cast").refresh()
    lines += told(log)
    assert "[CAST_INVALID_INPUT]" in lines[-1]["sentence"]
    assert SECRET not in json.dumps(lines)


def test_what_is_asked_for_wrongly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Protects from an operator who believes that something is told, and nothing is."""
    cases = ((UsageError, "yaml", "Use json"), (SetupError, f"json:{tmp_path}/none/log", "cannot write"))
    for kind, wanted, says in cases:
        monkeypatch.setenv(telemetry.LOG_VARIABLE, wanted)
        with pytest.raises(kind, match=says):
            telemetry.switch_on()
    monkeypatch.setenv(metrics.METRICS_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(SetupError, match="not a writable folder"):
        metrics.metrics_of(Store(spark=cast(Any, None), folder=tmp_path, view="v", lake=DELTA))


def test_labels_that_need_escaping() -> None:
    """Protects from one odd folder name that makes a collector reject the whole file."""
    name = 'a"b\\c\nd'
    written = generate_latest(metrics.gauges_of([("epoch", {"warehouse": name}, 3)])).decode()
    (line,) = [line for line in written.splitlines() if line[0] != "#"]
    assert line == 'deltafold_epoch{warehouse="a\\"b\\\\c\\nd"} 3.0'
