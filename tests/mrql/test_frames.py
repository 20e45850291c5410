"""The text of a subquery that refers to the rows around it."""

from __future__ import annotations

from deltafold.language.mrql.rows.frames import Frame, FreshNames


def test_only_columns_of_the_rows_around_are_imported() -> None:
    """Protects from an apostrophe in a quoted name that hides the columns after it, and from names that look alike."""
    around = Frame(FreshNames())
    outer = around.column("1", "k")
    inner = around.child()
    sql = inner.importing(f"`it's` + {outer} + `a``{outer}` + '\\'{outer}' + '`' + {outer}")
    new = inner.imported[outer]
    assert new != outer and sql == f"`it's` + {new} + `a``{outer}` + '\\'{outer}' + '`' + {new}"
