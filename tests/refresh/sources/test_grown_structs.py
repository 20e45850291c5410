"""A struct of a source gets a field: a query that reads its other fields goes on, one that reads all of it does not."""

from __future__ import annotations

import pytest

from deltafold.algebra.errors import QueryError
from deltafold.algebra.wider_types import is_wider
from tests.night import every
from tests.refresh.test_changes import refusal
from tests.sandbox import DeltaSandbox, checked, rows

FIELDS = {
    "grouped": "select k, sum(s.a) a, max(s.i.x) x, count_if(s is null) n from t group by k",
    "rows": "select k, s.b, s.i.x, l.p, m from t where s.a > 0",
    "joined with older rows": "select d.name, s.a from t join d on t.s.b = d.b",
}
WHOLE = ("select k, s from t", "select k, to_json(s) j from t", "select k, s.i from t", "select s.* from t")
GROWTH = (
    "add columns (s.z int first)",
    "add columns (s.i.w string first)",
    "add columns (l.element.q int)",
    "alter column s.a comment 'what it costs'",
)


def filled(delta: DeltaSandbox) -> None:
    """A table with a struct in a struct, and a list of structs."""
    delta.sql(
        f"create table delta.`{delta.path('t')}` (k int, s struct<a: int, b: int, i: struct<x: int>>, "
        "l array<struct<p: int>>, m int) using delta"
    )
    values = [
        f"({k}, named_struct('a', {k}, 'b', {10 * k}, 'i', named_struct('x', {k})), array(named_struct('p', {k})), {k})"
        for k in (1, 2, 3)
    ]
    delta.sql(f"insert into {{t}} values {', '.join(values)}")
    delta.declare("t")
    delta.source("d", "b int, name string", [(10, "ten"), (20, "twenty")])


def grow(delta: DeltaSandbox) -> None:
    """Add fields before and after the others, then write, change and delete rows."""
    for change in GROWTH:
        delta.sql(f"alter table {{t}} {change}")
    inner = "named_struct('w', 'n', 'x', 7)"
    struct = f"named_struct('z', 99, 'a', 5, 'b', 20, 'i', {inner})"
    delta.sql(f"insert into {{t}} values (2, {struct}, array(named_struct('p', 8, 'q', 9)), 4), (2, null, null, 5)")
    delta.sql("update {t} set m = 50 where k = 1")
    delta.sql("delete from {t} where k = 3")


@pytest.mark.parametrize("name", every(3, ["joined with older rows", "grouped", "rows"]))
def test_a_query_of_other_fields_goes_on(delta: DeltaSandbox, name: str) -> None:
    """Old rows that are removed, or joined again, lack the new fields."""
    filled(delta)
    view = delta.view(FIELDS[name])
    checked(view)
    grow(delta)
    report = checked(view)
    assert (report.verdict, report.generation) == ("applied", 1)
    if name == "grouped":
        assert rows(view) == [(1, 1, 1, 0), (2, 7, 7, 1)]
    delta.sql("insert into {d} values (10, 'again')")
    delta.sql("update {t} set s.z = 3")
    checked(view)


def test_a_query_of_the_whole_struct_does_not(delta: DeltaSandbox, long: bool) -> None:
    filled(delta)
    views = [delta.another(query) for query in (WHOLE if long else WHOLE[1:2])]
    for view in views:
        view.refresh()
    grow(delta)
    for view in views:
        assert "column s of source t changed from" in refusal(view), view.query
    checked(delta.view(views[0].query, views[0].name, on_change="rebuild"))


def test_a_field_that_a_query_reads_is_dropped(delta: DeltaSandbox) -> None:
    delta.sql(
        f"create table delta.`{delta.path('t')}` (k int, s struct<a: int, b: int>) using delta "
        "tblproperties ('delta.columnMapping.mode' = 'name')"
    )
    delta.sql("insert into {t} values (1, named_struct('a', 1, 'b', 2))")
    delta.declare("t")
    view = delta.view("select k, s.a from t")
    checked(view)
    delta.sql("alter table {t} drop column s.b")
    assert "column s of source t changed from" in refusal(view)
    with pytest.raises(QueryError, match="No such struct field"):
        delta.view("select k, s.b from t", "w").refresh()


@pytest.mark.parametrize(
    ("then", "now", "wider"),
    [
        ("smallint", "bigint", True),
        ("bigint", "int", False),
        ("float", "double", True),
        ("date", "timestamp_ntz", True),
        ("decimal(5,2)", "decimal(7,2)", True),
        ("decimal(5,2)", "decimal(6,4)", False),
        ("decimal(5,2)", "decimal(5,2)", False),
        ("int", "string", False),
    ],
)
def test_a_wider_type_is_said_to_be_one(then: str, now: str, wider: bool) -> None:
    assert is_wider(then, now) == wider


def test_a_field_that_is_dropped_and_added_again(delta: DeltaSandbox) -> None:
    """By column mapping its name means another column of the files: old rows that are removed have its old values."""
    delta.sql(
        f"create table delta.`{delta.path('t')}` (k int, s struct<a: int, b: int>) using delta "
        "tblproperties ('delta.columnMapping.mode' = 'name')"
    )
    delta.sql("insert into {t} values (1, struct(1, 10)), (2, struct(3, 30)), (2, null)")
    delta.declare("t")
    views = [delta.another(query) for query in ("select k, s.a from t", "select k, sum(s.b) b from t group by k")]
    for view in views:
        checked(view)
    delta.sql("alter table {t} drop column s.a")
    delta.sql("alter table {t} add column s.a int first")
    delta.sql("insert into {t} values (1, struct(7, 70))")
    delta.sql("delete from {t} where k = 2 and s is not null")
    for view in views:
        assert checked(view).verdict == "applied"
