"""The table of operators in the docs is generated from the code."""

from __future__ import annotations

from pathlib import Path

from deltafold.compiler.operators import ADDITIVE, EXTREME, UNMERGED, operator_table

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "operators.md").read_text(encoding="utf-8")


def test_the_page_has_the_table() -> None:
    """`python -m deltafold.compiler.operators` prints it anew."""
    assert operator_table() in PAGE


def test_aggregates_are_listed_by_their_accumulators() -> None:
    """An accumulator that gets an inverse belongs in another row."""
    assert "count" in ADDITIVE.name and "max" in EXTREME.name and "median" in UNMERGED.name
    assert "variance of TINYINT to INT" in ADDITIVE.name and "variance of doubles and BIGINT" in EXTREME.name
