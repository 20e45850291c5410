"""The rules and the board in docs/monitoring name metrics, labels and verdicts that exist."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from deltafold.algebra.results.report import EpochVerdict, Report
from deltafold.algebra.results.upkeep import Lag, Size, Status
from deltafold.operations.metrics import FAMILIES, Metrics

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
RULES = [
    rule for group in yaml.safe_load((FOLDER / "deltafold.rules.yml").read_text())["groups"] for rule in group["rules"]
]
BOARD = json.loads((FOLDER / "deltafold.grafana.json").read_text())
METRIC = re.compile(r"\b(deltafold[_:]\w+)")
SELECTED = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"")
GROUPED = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
SHOWN = re.compile(r"\$labels\.(\w+)|\{\{(\w+)\}\}")
VERDICT = re.compile(r'verdict="([^"]*)"')


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of each family that a view's files have."""
    folder = tmp_path_factory.mktemp("collector")
    report = Report(
        view="v", epoch=1, generation=1, verdict="applied", sentence="", finished="2026-11-29T00:00:00+00:00"
    )
    entry = SimpleNamespace(report=report, intent=SimpleNamespace(losses=1))
    store = SimpleNamespace(
        view="v", folder=folder / "warehouse" / "views" / "v", journal=SimpleNamespace(last_complete=lambda: entry)
    )
    metrics = Metrics(folder, cast(Any, store))
    metrics.write_state(Status(view="v", epoch=1, lag={"t": Lag(1, 1)}, tables={"view": Size(1, 1)}))
    metrics.write_attempt(1.0, succeeded=True)
    families = [family for file in folder.glob("*.prom") for family in text_string_to_metric_families(file.read_text())]
    return {family.name: {name for sample in family.samples for name in sample.labels} for family in families}


def expressions() -> Iterator[tuple[str, str]]:
    """Each expression, with the texts in which its labels are shown."""
    for rule in RULES:
        yield rule["expr"], " ".join(rule.get("annotations", {}).values())
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for variable in BOARD["templating"]["list"]:
        yield variable["query"], ""


def test_every_metric_and_label_exists(labels: dict[str, set[str]]) -> None:
    assert labels.keys() == {f"deltafold_{family}" for family in FAMILIES}
    recorded = {rule["record"]: {"warehouse", "view"} for rule in RULES if "record" in rule}
    named = list(expressions())
    assert len(named) > 20
    for expression, shown in named:
        metrics = METRIC.findall(re.sub(r'"[^"]*"', '""', expression))
        known = set[str]().union(*({**labels, **recorded}[metric] for metric in metrics))
        asked = set(SELECTED.findall(expression))
        asked |= {name.strip() for names in GROUPED.findall(expression) for name in names.split(",")}
        asked |= {name for pair in SHOWN.findall(shown) for name in pair if name}
        assert asked <= known, expression
        assert {*VERDICT.findall(expression)} <= {*get_args(EpochVerdict)}
        assert all(expression.count(left) == expression.count(right) for left, right in ("()", "{}", "[]"))


def test_an_alert_says_what_to_do() -> None:
    alerts = [rule for rule in RULES if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) >= 6
    for rule in alerts:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"].startswith("{{ $labels.view }}: ")
        assert rule["annotations"]["description"].endswith(".")


def test_panels_do_not_overlap() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        apart = (one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]) or (
            one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        )
        assert apart and one["x"] + one["w"] <= 24
