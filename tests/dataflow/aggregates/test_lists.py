"""Lists of one group-by pair the values of the same rows, as Spark's do."""

from __future__ import annotations

import pytest

from tests.night import every
from tests.sandbox import MemorySandbox, Step, checked, rows

# no order of the values of one column puts those of another in order
FIRST = [(1, 1, 9, "b"), (1, 2, 7, "c"), (1, 3, 8, "a"), (2, 4, 5, "z"), (2, 5, None, "y"), (None, 6, 1, "n")]
STEPS: tuple[Step, ...] = (
    ("insert", "t", [(1, 7, 1, "d"), (2, 8, 6, None), (3, 9, 2, "x"), (3, 10, 1, "w")]),
    ("delete", "t", "id in (2, 4)"),
    ("update", "t", {"v": "0", "s": "'q'"}, "id = 3"),
    ("delete", "t", "k = 3"),
)
EACH = "select k, id, v, s from t where v is not null and s is not null"
PAIRED = {
    "zipped": "select k, e.* from (select k, explode(arrays_zip(collect_list(id), collect_list(v), array_agg(s))) e "
    "from ({each}) group by k)",
    "zip_with": "select k, e.* from (select k, explode(zip_with(zip_with(collect_list(v), collect_list(s), "
    "(v, s) -> struct(v, s)), collect_list(id), (p, id) -> struct(id, p.v, p.s))) e from ({each}) group by k)",
    "maps": "select k, id, m[id] v, n[id] s from (select k, map_from_arrays(collect_list(id), collect_list(v)) m, "
    "map_from_arrays(collect_list(id), collect_list(s)) n from ({each}) group by k) lateral view explode(m) as id, x",
    "positions": "select k, ids[p] id, v, lists[p] s from (select k, collect_list(s) lists, array_agg(v) vs, "
    "collect_list(id) ids from ({each}) group by k) lateral view posexplode(vs) as p, v",
    "texts": "select k, int(split(i, ',')[p]) id, int(split(v, ',')[p]) v, s from (select k, listagg(id, ',') i, "
    "string_agg(v, ',') v, array_agg(s) l from ({each}) group by k) lateral view posexplode(l) as p, s",
    "texts in an order": "select k, int(split(i, ',')[p]) id, int(split(v, ',')[p]) v, split(l, ',')[p] s "
    "from (select k, listagg(id, ',') within group (order by k) i, string_agg(v, ',') within group (order by k) v, "
    "listagg(s, ',') within group (order by k desc) l from ({each}) group by k) "
    "lateral view posexplode(split(i, ',')) as p, x",
}  # fmt: skip


@pytest.mark.parametrize("case", every(6, PAIRED))
def test_lists_pair_values_of_the_same_rows(sandbox: MemorySandbox, case: str) -> None:
    """Protects from pairs that are in no row, also after deletions."""
    sandbox.sources({"t": ("k int, id int, v int, s string", FIRST)})
    view = sandbox.view(PAIRED[case].format(each=EACH))
    for step in ((), *STEPS):
        if step:
            sandbox.do(step)
        checked(view)
        assert rows(view) == sorted(map(tuple, sandbox.read(EACH.replace(" t ", " {t} ")).collect()), key=repr)


def test_lists_leave_out_null_each_for_itself(sandbox: MemorySandbox) -> None:
    """The rows are in order of all values, NULL first; FILTER, DISTINCT and a list's own order are respected."""
    sandbox.sources({"t": ("k int, id int, v int, s string", [(1, 2, None, "b"), (1, 1, 5, None), (1, 2, 4, "a")])})
    view = sandbox.view(
        """select collect_list(id) ids, collect_list(v) vs, collect_list(s) filter (where id > 1) of_two,
        listagg(s, ',') g, listagg(s, ',') within group (order by id desc, v desc) w, first(s) f, last(s) l,
        first(v) ignore nulls n, collect_list(distinct id) d, collect_set(v) c, sort_array(collect_list(v), false) z,
        max(v) m from t group by k"""
    )
    checked(view)
    assert rows(view) == [([1, 2, 2], [5, 4], ["b", "a"], "b,a", "a,b", None, "a", 5, [1, 2], [4, 5], [5, 4], 5)]
    sandbox.do(("delete", "t", "v = 5"), ("insert", "t", [(1, 3, None, "a")]))
    checked(view)
    assert rows(view) == [([2, 2, 3], [4], ["b", "a", "a"], "b,a,a", "a,a,b", "b", "a", 4, [2, 3], [4], [4], 4)]


def test_a_list_alone_keeps_only_its_own_values(sandbox: MemorySandbox) -> None:
    """Other lists of distinct values, or that the query sorts, need no values of this one."""
    sandbox.sources({"t": ("k int, id int, v int, s string", FIRST)})
    lists = "collect_list(s) a, sort_array(collect_list(v)) b, size(collect_list(id)) n, collect_set(v) c"
    assert "named_struct" not in sandbox.view(f"select k, {lists} from t group by k").explain()


def test_explain_names_the_order_of_lists(sandbox: MemorySandbox) -> None:
    sandbox.sources({"t": ("k int, id int, v int, s string", FIRST)})
    text = sandbox.view("select k, collect_list(id) ids, collect_list(v) vs from t group by k").explain()
    assert "the lists of a group-by are columns of its rows in one order" in text
