"""What a program reads: declared sources by name and path, those without data, included files, and single items."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltafold.algebra.errors import QueryError, SourceError
from deltafold.api import Delta, Mrql
from tests.mrql.schemas import SCHEMAS
from tests.sandbox import MemorySandbox, confirm, rows


def names(text: str, **options: object) -> frozenset[str]:
    return Mrql(text, **options).names & {name.lower() for name in (*SCHEMAS, "points")}  # type: ignore[arg-type]


def test_only_what_the_chosen_query_reads_is_looked_up() -> None:
    text = "A = select p from p in P; A; select e from e in E; function f(x: int): int { x + count(D) }; f(1);"
    assert names(text, item=1) == {"p"}
    assert names(text, item=2) == {"e"}
    assert names(text) == {"d"}


def test_paths_and_files() -> None:
    text = "X = source(binary, 'tmp/E.bin'); select x from x in X;"
    assert names(text) == {"e"}
    assert names(text, paths={"tmp/E.bin": "points"}) == {"points"}
    assert names("select x from x in source(binary, args[0]);", args=("a/D.txt",)) == {"d"}


def test_a_path_goes_before_the_definition_and_this_before_the_file() -> None:
    def read(text: str, **paths: str) -> str:
        return Mrql(text, paths={"Q.bin": paths["q"]} if paths else {}).program(list(SCHEMAS), SCHEMAS.get).sql

    assert "FROM `P`" in read("P = source(binary, 'Q.bin'); select p from p in P;")
    assert "FROM `E`" in read("P = source(binary, 'Q.bin'); select p from p in P;", q="E")
    assert "FROM `Q`" in read("Z = source(binary, 'dir/Q.bin'); select p from p in Z;")


def test_includes(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "b.mrql").write_text("include 'c.mrql'; W = select v from v in V where v > 1;")
    (tmp_path / "more" / "c.mrql").write_text("V = select p.X from p in P;")
    text = "include 'more/b.mrql'; count(W);"
    assert "count(1)" in Mrql(text, folder=tmp_path).program(list(SCHEMAS), SCHEMAS.get).sql
    assert Mrql("include 'more/c.mrql';" + text, folder=tmp_path).names >= {"p"}
    (tmp_path / "more" / "c.mrql").write_text("V = Q; W = P;")
    with pytest.raises(QueryError, match=r"more/b\.mrql:1:19: W is defined twice: first at c\.mrql:1\."):
        Mrql(text, folder=tmp_path).names  # noqa: B018
    (tmp_path / "more" / "c.mrql").write_text("select;")
    with pytest.raises(QueryError, match=r"c\.mrql:1:7: unexpected `;`"):
        Mrql(text, folder=tmp_path).names  # noqa: B018
    (tmp_path / "more" / "c.mrql").write_text("include 'b.mrql';")
    with pytest.raises(QueryError, match=r"c\.mrql:1:1: b\.mrql includes itself"):
        Mrql(text, folder=tmp_path).names  # noqa: B018


@pytest.mark.parametrize("item", [0, 3, -1])
def test_items_are_counted_from_one(item: int) -> None:
    with pytest.raises(QueryError, match=f"item={item}: the program has 2 queries. Choose 1 to 2"):
        Mrql("1; 2;", item=item).program([], {}.get)


def test_a_source_without_data_is_no_fault_of_the_query(sandbox: MemorySandbox) -> None:
    sandbox.warehouse.source("later", Delta(sandbox.path("later")))
    view = sandbox.view(Mrql("select x.a from x in later;"))
    with pytest.raises(SourceError, match="source later has no data"):
        view.explain()
    sandbox.insert("later", "a int", [(1,), (2,)])
    view.refresh()
    assert rows(view) == [(1,), (2,)]
    confirm(view)


def test_items_of_one_program_are_views_of_their_own(sandbox: MemorySandbox) -> None:
    sandbox.source("p", "x int", [(1,), (2,), (2,)])
    text = "V = select distinct p.x from p in p; V; sum(V); dump 'out' from select v from v in V order by v desc;"
    found = [sandbox.another(Mrql(text, item=item)) for item in (1, 2, 3)]
    for view in found:
        view.refresh()
        confirm(view)
    assert [rows(view) for view in found] == [[(1,), (2,)], [(3,)], [(1,), (2,)]]
    assert sorted(row.value for row in found[2].answer().collect()) == [1, 2]


def test_another_program_is_another_query(sandbox: MemorySandbox) -> None:
    sandbox.source("p", "x int", [(1,), (2,)])
    sandbox.view(Mrql("sum(select v.x from v in p);")).refresh()
    same = sandbox.view(Mrql("// the same\nsum ( select w.x from w in p );"))
    assert "no change" in same.refresh().sentence or "nothing to do" in same.refresh().sentence
    changed = sandbox.view(Mrql("sum(select v.x + 1 from v in p);"), on_change="rebuild")
    changed.refresh()
    assert rows(changed) == [(5,)]


def test_columns_of_streams_and_null_in_an_aggregation(sandbox: MemorySandbox) -> None:
    """Names with `_` in front, as Kafka's; a value that is missing leaves a product as it is."""
    sandbox.source(
        "t", "_key string, _offset bigint, n int", [("a", 1, 2), ("a", 2, None), ("a", 3, 3), ("b", 4, None)]
    )
    text = (
        "aggregation product(\\(x: int, y: int): int. x * y, 1): int; "
        "select < k: _key, p: product(r.n), last: max(r._offset) > from r in t group by _key: r._key;"
    )
    view = sandbox.view(Mrql(text))
    view.refresh()
    confirm(view)
    assert rows(view) == [("a", 6, 3), ("b", 1, 4)]
    sandbox.sql("delete from {t} where n = 3")
    view.refresh()
    confirm(view)
    assert rows(view) == [("a", 2, 2), ("b", 1, 4)]


def test_a_list_that_is_null_is_not_an_empty_one(sandbox: MemorySandbox) -> None:
    sandbox.source("t", "id int, l array<int>", [(1, [5]), (2, []), (3, None)])
    text = (
        "select (r.id, count(r.l), sum(r.l), member(5, r.l), exists r.l, some x in r.l: x > 1, all x in r.l: x > 1, "
        "select x from x in r.l) from r in t; select (r.id, x) from r in t, x in r.l; "
        "select (k, count(r.l)) from r in t group by k: r.id > 1;"
    )
    found = [sandbox.another(Mrql(text, item=item)) for item in (1, 2, 3)]
    for view in found:
        view.refresh()
        confirm(view)
    assert rows(found[0]) == [
        (1, 1, 5, True, True, True, True, [5]),
        (2, 0, 0, False, False, False, True, []),
        (3, *[None] * 7),
    ]
    assert [rows(view) for view in found[1:]] == [[(1, 5)], [(False, 1), (True, 0)]]
