"""The JSON Schema of pipeline.yaml: the file in the package is current, and accepts and refuses what a run does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from deltafold.pipelines.declaration import json_schema
from tests.cli.calling import call
from tests.pipelines.test_docs import blocks
from tests.spark.machine import PROJECT

SCHEMA = json.loads(json_schema.stored_schema())
PAGE = PROJECT / "docs" / "reference" / "pipeline-yaml.md"
DECLARED = [path.read_text() for path in sorted((PROJECT / "pipelines").glob("*/pipeline.yaml"))]


def faults(text: str) -> list[str]:
    """Return where an editor, for which days are texts, underlines a declaration."""
    declared = json.loads(json.dumps(yaml.safe_load(text), default=str))
    return [error.json_path for error in Draft202012Validator(SCHEMA).iter_errors(declared)]


def test_the_file_is_current(regenerate: bool) -> None:
    if regenerate:
        Path(json_schema.__file__).with_name(json_schema.FILE).write_text(json_schema.compute_schema())
    assert json_schema.stored_schema() == json_schema.compute_schema()
    assert call("schema").stdout == json_schema.stored_schema()


def test_every_key_has_a_description() -> None:
    parts: list[Any] = [SCHEMA, *SCHEMA["$defs"].values()]
    keys = [(part["title"], key, found) for part in parts for key, found in part.get("properties", {}).items()]
    assert len(keys) > 60
    assert [(part, key) for part, key, found in keys if not found.get("description")] == []


@pytest.mark.parametrize("text", [*DECLARED, *blocks("yaml", PAGE)])
def test_a_declaration_is_accepted(text: str) -> None:
    assert faults(text) == []


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("sources: {}\npolcy: auto", "$"),
        ("sources: {}\npolicy: quick", "$.policy"),
        ("sources: {sales: {delta: lake/sales, primary_key: 7}}", "$.sources.sales.primary_key"),
        ("sources: {sales: {files: {path: in, format: cvs, schema: id INT}}}", "$.sources.sales.files"),
        ("policy: auto", "$"),
    ],
)
def test_a_mistake_is_underlined(text: str, where: str) -> None:
    assert faults(text) == [where]
