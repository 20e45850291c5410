"""The README's table is what the code says of each kind of operator."""

from __future__ import annotations

from pathlib import Path

from incremental.compiler.operators import ADDITIVE, EXTREME, UNMERGED, operator_table

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_readme_has_the_table() -> None:
    """`python -m incremental.compiler.operators` prints it."""
    assert operator_table() in README


def test_aggregates_are_listed_by_their_accumulators() -> None:
    """An accumulator that gets an inverse belongs in another row."""
    assert "count" in ADDITIVE.name and "max" in EXTREME.name and "median" in UNMERGED.name
    assert "stddev of ints" in ADDITIVE.name and "stddev of doubles" in EXTREME.name
