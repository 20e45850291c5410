"""Refreshes as events of OpenLineage: what they have, and that none of them can fail a refresh."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from deltafold.algebra.errors import DeltafoldWarning, EvaluationError
from deltafold.algebra.results.report import Report
from deltafold.operations.openlineage import Job, is_configured, name_dataset, open_run
from tests.sandbox import MemorySandbox

Events = Callable[[], list[dict[str, Any]]]
SALES = ("city string, price int", [("Oslo", 3), ("Rome", 4)])
WRONG = "select cast(city as int) as wrong from sales"
REVENUE = "select city, sum(price) as revenue, count(*) as sales from sales group by city"


@pytest.fixture(autouse=True)
def without_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No configuration before a test, nor after it: OpenLineage's client adds variables of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with mock.patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
            del os.environ[name]
        yield


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Events:
    """The events since the last call, as OpenLineage's client wrote them into a file."""
    pytest.importorskip("openlineage.client", reason="the extra `openlineage` is not installed")
    file = tmp_path / "events.json"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(file))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")

    def read() -> list[dict[str, Any]]:
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    return read


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("/lake/orders", ("file", "/lake/orders")),
        ("file:/lake/orders", ("file", "/lake/orders")),
        ("s3a://bucket/lake/orders", ("s3://bucket", "lake/orders")),
        ("gs://bucket/orders", ("gs://bucket", "orders")),
        ("hdfs://name:8020/lake/orders", ("hdfs://name:8020", "/lake/orders")),
        ("abfss://box@account.dfs.core.windows.net/orders/", ("abfss://box@account.dfs.core.windows.net", "orders")),
        ("s3a://key:hunter2@bucket/orders", ("s3://…@bucket", "orders")),
    ],
)
def test_a_location_is_named_as_openlineage_does(location: str, named: tuple[str, str]) -> None:
    assert name_dataset(location) == named


def test_it_is_off_unless_openlineage_is_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not is_configured()
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE"):
        with monkeypatch.context() as patched:
            patched.setenv(name, "something")
            assert is_configured()
    (tmp_path / "openlineage.yml").write_text("transport: {type: console}\n")
    assert is_configured()
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "True")
    assert not is_configured()


def test_a_refresh_has_a_start_and_an_end(sandbox: MemorySandbox, events: Events) -> None:
    sandbox.sources({"sales": SALES})
    view = sandbox.warehouse.view("revenue", REVENUE)
    report = view.refresh()
    start, complete = events()
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert complete["job"] == {
        "namespace": "deltafold",
        "name": f"{sandbox.folder.name}.revenue",
        "facets": complete["job"]["facets"],
    }
    assert complete["job"]["facets"]["sql"]["query"] == REVENUE
    (read,), (written,) = complete["inputs"], complete["outputs"]
    assert (read["namespace"], read["name"]) == ("file", sandbox.path("sales"))
    assert [field["name"] for field in read["facets"]["schema"]["fields"]] == ["city", "price"]
    assert read["facets"]["version"]["datasetVersion"] == str(report.versions["sales"][1])
    assert "version" not in start["inputs"][0]["facets"]
    assert (written["namespace"], written["name"]) == ("file", str(view.folder))
    assert written["facets"]["version"]["datasetVersion"] == "1.1"
    assert [(field["name"], field["type"]) for field in written["facets"]["schema"]["fields"]] == [
        ("city", "string"),
        ("revenue", "bigint"),
        ("sales", "bigint"),
    ]
    lineage = written["facets"]["columnLineage"]["fields"]
    assert {name: [each["field"] for each in lineage[name]["inputFields"]] for name in lineage} == {
        "city": ["city"],
        "revenue": ["price"],
        "sales": [],
    }
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == report.rows_written
    assert written["facets"]["symlinks"]["identifiers"][0]["name"] == view.address.path


def test_views_below_have_events_of_their_own(sandbox: MemorySandbox, events: Events) -> None:
    sandbox.sources({"sales": SALES})
    sandbox.warehouse.source("revenue", sandbox.warehouse.view("revenue", REVENUE))
    spread = sandbox.warehouse.view("spread", "select max(revenue) - min(revenue) as spread from revenue")
    spread.refresh()
    sent, name = events(), sandbox.folder.name
    assert [(each["eventType"], each["job"]["name"]) for each in sent] == [
        ("START", f"{name}.spread"),
        ("START", f"{name}.revenue"),
        ("COMPLETE", f"{name}.revenue"),
        ("COMPLETE", f"{name}.spread"),
    ]
    (read,) = sent[-1]["inputs"]
    assert (read["name"], read["facets"]["version"]["datasetVersion"]) == (sent[2]["outputs"][0]["name"], "1.1")
    parent = sent[2]["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["job"]["name"]) == (sent[0]["run"]["runId"], f"{name}.spread")


def test_a_pipeline_is_the_parent_of_its_views(sandbox: MemorySandbox, events: Events) -> None:
    sandbox.sources({"sales": SALES})
    sandbox.warehouse.source("revenue", sandbox.warehouse.view("revenue", REVENUE))
    sandbox.warehouse.view("spread", "select max(revenue) - min(revenue) as spread from revenue")
    sandbox.warehouse.view("wrong", WRONG)
    sandbox.warehouse.view("unknown", "select nothing from sales")
    sandbox.warehouse.refresh()
    first, *within, last = events()
    name = sandbox.folder.name
    assert sorted((each["job"]["name"], each["eventType"]) for each in within) == sorted(
        (f"{name}.{view}", state)
        for view, end in (("revenue", "COMPLETE"), ("spread", "COMPLETE"), ("wrong", "FAIL"), ("unknown", "FAIL"))
        for state in ("START", end)
    )
    (spread,) = [each for each in within if (each["job"]["name"], each["eventType"]) == (f"{name}.spread", "COMPLETE")]
    assert spread["inputs"][0]["facets"]["version"]["datasetVersion"] == "1.1"
    assert (first["eventType"], first["job"]["name"], first["outputs"]) == ("START", name, [])
    for each in within:
        parent = each["run"]["facets"]["parent"]
        assert parent["run"]["runId"] == parent["root"]["run"]["runId"] == first["run"]["runId"]
    message = last["run"]["facets"]["errorMessage"]["message"]
    assert (last["eventType"], message) == ("FAIL", "2 of 4 datasets failed or were skipped: wrong, unknown")


def test_a_scheduler_is_the_parent(sandbox: MemorySandbox, events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    task, dag = "0197f1d2-0000-7000-8000-000000000000", "0197f1d2-0000-7000-8000-000000000001"
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"https://airflow/shop.refresh/{task}")
    monkeypatch.setenv("OPENLINEAGE_ROOT_PARENT_ID", f"https://airflow/shop/{dag}")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    sandbox.sources({"sales": SALES})
    sandbox.warehouse.view("revenue", REVENUE)
    sandbox.warehouse.refresh()
    first, start, *_ = events()
    parent = first["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["root"]["run"]["runId"]) == (task, dag)
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("https://airflow", "shop.refresh")
    parent = start["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["root"]["run"]["runId"]) == (first["run"]["runId"], dag)
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("shop", sandbox.folder.name)


def test_a_failure_shows_no_value_of_a_row(sandbox: MemorySandbox, events: Events) -> None:
    sandbox.sources({"sales": SALES})
    view = sandbox.warehouse.view("wrong", WRONG)
    with pytest.raises(EvaluationError, match="Oslo"):
        view.refresh()
    start, fail = events()
    assert (start["eventType"], fail["eventType"]) == ("START", "FAIL")
    message = fail["run"]["facets"]["errorMessage"]["message"]
    assert message.startswith("Spark could not run the refresh: [CAST_INVALID_INPUT]") and "Oslo" not in json.dumps(
        fail
    )


UNREACHABLE = '{"type": "http", "url": "http://127.0.0.1:9", "retry": {"total": 0}}'


@pytest.mark.parametrize(
    ("variable", "value", "cause"),
    [
        ("OPENLINEAGE__TRANSPORT", UNREACHABLE, "Connection"),
        ("OPENLINEAGE__TRANSPORT", '{"type": "no such transport"}', "no such transport"),
        ("OPENLINEAGE_CONFIG", "missing.yml", "no transport is configured"),
        ("OPENLINEAGE_PARENT_ID", "not three parts", "OPENLINEAGE_PARENT_ID is not namespace/job/run"),
        ("OPENLINEAGE_URL", "http://127.0.0.1:9", "pip install 'deltafold[openlineage]'"),
    ],
)
def test_what_cannot_be_sent_is_one_warning(
    sandbox: MemorySandbox, events: Events, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, cause: str
) -> None:
    if "TRANSPORT" in variable or "CONFIG" in variable:
        for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
            monkeypatch.delenv(name)
    if "pip install" in cause:
        monkeypatch.setitem(sys.modules, "openlineage.client", None)
    monkeypatch.setenv(variable, value)
    sandbox.sources({"sales": SALES})
    sandbox.warehouse.view("revenue", REVENUE)
    sandbox.warehouse.view("cities", "select distinct city from sales")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert sandbox.warehouse.refresh().ok
    (warning,) = [str(each.message) for each in caught if each.category is DeltafoldWarning]
    assert warning.startswith("OpenLineage: the events of this refresh are not sent: ") and cause in warning


@pytest.mark.parametrize("broken", ["openlineage.client", "openlineage.client.uuid", "job below"])
@pytest.mark.parametrize("action", ["always", "error"])
def test_no_event_fails_a_refresh(
    events: Events, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, action: Any, broken: str
) -> None:
    """Not even where warnings are errors, which is logged instead."""

    def find_job(view: str) -> Job:
        raise OSError(f"{view} is unknown")

    if broken != "job below":
        monkeypatch.setitem(sys.modules, broken, None)
    below = Report(view="low", epoch=1, generation=1, verdict="applied", finished="2026-11-29T10:00:00+00:00")
    report = Report(view="top", epoch=1, generation=1, verdict="applied", below=(below,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        with open_run(lambda: Job(name="shop"), below=find_job) as run:
            run.report = report
    told = [str(each.message) for each in caught if each.category is DeltafoldWarning]
    (message,) = told if action == "always" else caplog.messages
    assert message.startswith("OpenLineage: the events of this refresh are not sent: ")
    assert ("low is unknown" if broken == "job below" else "is not installed") in message
