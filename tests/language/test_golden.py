"""Explain of real queries, compared as whole texts: a change in any pass shows here."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.language.schemas import explained

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.sql"))


@pytest.mark.parametrize("query", GOLDEN, ids=lambda path: path.stem)
def test_explain(spark: SparkSession, query: Path, regenerate: bool) -> None:
    """Protects fingerprint, names, states, publication and rules from unintended changes."""
    found = explained(spark, query.stem, query.read_text()) + "\n"
    expected = query.with_suffix(".txt")
    if regenerate:
        expected.write_text(found)
    assert found == expected.read_text(), "pytest tests/language --regenerate-golden writes the new text"


def test_every_text_has_its_query() -> None:
    """An orphaned text would never be compared."""
    assert {p.stem for p in GOLDEN} == {p.stem for p in (Path(__file__).parent / "golden").glob("*.txt")}
    assert len(GOLDEN) >= 12


def test_comments_and_layout_do_not_matter(spark: SparkSession) -> None:
    """A reformatted query must not rebuild a view."""
    query = (Path(__file__).parent / "golden" / "group_by.sql").read_text()
    squeezed = " ".join(line for line in query.splitlines() if not line.startswith("--"))
    assert explained(spark, "v", squeezed) == explained(spark, "v", query)
