"""The README's table is what the code says of each kind of operator."""

from __future__ import annotations

from pathlib import Path

from incremental.compiler.operators import ADDITIVE, EXTREME, UNMERGED, table

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_readme_has_the_table() -> None:
    """`python -m incremental.compiler.operators` prints it anew."""
    assert table() in README


def test_aggregates_stand_where_their_monoids_put_them() -> None:
    """A monoid that gets an inverse moves to another row."""
    assert "count" in ADDITIVE.name and "max" in EXTREME.name and "median" in UNMERGED.name
    assert "stddev of ints" in ADDITIVE.name and "stddev of doubles" in EXTREME.name
