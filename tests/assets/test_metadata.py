"""What a materialisation tells of a landing."""

from __future__ import annotations

from assets.metadata import of_landing, of_partition
from incremental.algebra.results.report import Landing


def test_what_is_in_quarantine_is_on_the_page_of_the_asset_and_of_the_partition() -> None:
    """Protects from rows that are left out while every page is green and says nothing."""
    landing = Landing("sales", 3, ("1", "2"), (), (), 10, 1.0, {"1": 2, "7": 5})
    told = of_landing(landing)
    assert (told["malformed rows left out"].value, told["rows in quarantine"].value) == (2, 7)
    assert [of_partition(landing, key)["rows in quarantine"].value for key in ("1", "2")] == [2, 0]
