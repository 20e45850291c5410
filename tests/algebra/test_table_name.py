"""Names of tables in a catalog, without Spark."""

from __future__ import annotations

import pytest

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import Delta
from deltafold.algebra.sqltext import table_name_of, table_name_parts

NAMES = {
    "t": ("t",),
    "sales.orders": ("sales", "orders"),
    "lake.sales.`2024_orders`": ("lake", "sales", "2024_orders"),
    "lake.`a b`.`or.ders`": ("lake", "a b", "or.ders"),
    "`it``s`.`sales-eu`": ("it`s", "sales-eu"),
    "`größe`.`naïve`": ("größe", "naïve"),
}
NO_NAMES = [
    "",
    " ",
    "a..b",
    ".a",
    "a.",
    "a-b.c",
    "a b.c",
    "/lake/orders",
    "s3a://lake/orders",
    "./a.b",
    "a.`b",
    "a.``",
    5,
]


@pytest.mark.parametrize("name", NAMES)
def test_parts_are_read_and_written_as_spark_does(name: str) -> None:
    """Protects from a dot or a backquote within a part that would lead to another table."""
    parts = table_name_parts(name)
    assert parts is not None
    assert parts == NAMES[name]
    assert table_name_of(parts) == name
    assert table_name_parts("größe.2024_orders") == (
        "größe",
        "2024_orders",
    )  # Spark wants backquotes, people forget them


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_is_refused_before_spark_sees_it(name: str) -> None:
    """Protects from a path that is given as a name, and from names that Spark's parser explains in its own words."""
    with pytest.raises(SourceError, match=r"is not the name of a table. Write `catalog"):
        Delta(table=name)


def test_a_delta_source_has_a_path_or_a_name() -> None:
    """Protects from a declaration of which one half would be ignored."""
    for path, table in ((None, None), ("x", "y"), (" ", None)):
        with pytest.raises(SourceError, match="either a path or a table"):
            Delta(path, table=table)
    with pytest.raises(SourceError, match=r"is a path, not a name in the catalog. Declare the path /lake/orders"):
        Delta(table="delta.`/lake/orders`")
