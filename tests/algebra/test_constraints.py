"""Declared constraints: contradictions are refused, and references between plans are found."""

from __future__ import annotations

from typing import Any

import pytest

from deltafold.algebra.constraints import AppendOnlyFact, ForeignKeyFact, PrimaryKeyFact, collect_facts, find_reference
from deltafold.algebra.errors import SourceError
from deltafold.algebra.plan import Column, Item, Join, Plan, Reference, SourceRead, Sql, Union
from deltafold.algebra.product import rank_inputs
from deltafold.algebra.sources import Delta, Files, ForeignKey
from tests.compiler.plans import K2, D, K, Q, T, grouped, opaque, project, where

TYPES = {"o": {"k": "int", "x": "string", "m": "map<int,int>"}, "l": {"f": "int", "g": "bigint"}}
FACTS = (PrimaryKeyFact("d", ("k2",)), ForeignKeyFact("t", ("K",), "d", ("k2",)))
D_AGAIN = SourceRead("d", (("k2", Column("k2_2", "int")),))
EQUAL = ((Reference(K), Reference(K2)),)


def refused(**declared: Delta) -> str:
    with pytest.raises(SourceError) as error:
        collect_facts(declared, TYPES, declared)
    return str(error.value)


def foreign(*columns: str, to: str = "o") -> Delta:
    return Delta("l", foreign_keys=(ForeignKey(columns, to),))


def test_facts_of_declarations() -> None:
    """A foreign key counts if the query reads both sides."""
    declared = {"o": Delta("o", primary_key=("k",)), "l": foreign("f")}
    facts = collect_facts(declared, TYPES, "lo")
    assert facts == (PrimaryKeyFact("o", ("k",)), ForeignKeyFact("l", ("f",), "o", ("k",)))
    assert [fact.text for fact in facts] == ["o: primary key (k)", "l: foreign key (f) to o (k)"]
    assert collect_facts(declared, TYPES, "o") == facts[:1]
    assert collect_facts(declared, TYPES, "l") == ()
    assert collect_facts({"n": Delta("n", primary_key=("any",))}, {}, "n") == (PrimaryKeyFact("n", ("any",)),)


def test_declarations_of_other_sources_are_not_checked() -> None:
    """Protects a view from declarations of sources that it does not read, and of what these refer to."""
    declared = {"o": Delta("o", primary_key=("gone",)), "l": foreign("f"), "x": Delta("x", append_only=True)}
    assert collect_facts(declared, TYPES, "lx") == (AppendOnlyFact("x"),)
    with pytest.raises(SourceError, match="source o: unknown column 'gone' in its primary key"):
        collect_facts(declared, TYPES, "lo")


def test_keys_that_do_not_match_the_sources() -> None:
    """The message names the source, the columns and the fix."""
    o = Delta("o", primary_key=("k",))
    unknown = refused(o=Delta("o", primary_key=("K",)))
    assert "unknown column 'K' in its primary key" in unknown and "k, x, m" in unknown
    assert "type map<int,int>" in refused(o=Delta("o", primary_key=("m",)))
    assert "refers to p, which is not declared. Declare that source" in refused(o=o, l=foreign("f", to="p"))
    assert "refers to o, which declares no primary key. Declare it there" in refused(o=Delta("o"), l=foreign("f"))
    assert "whose primary key is (k). Name one column for each" in refused(o=o, l=foreign("f", "g"))
    assert "but g has type bigint and k type int. Give both the same type" in refused(o=o, l=foreign("g"))


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"primary_key": "k"}, "'k' is not a tuple of column names. Write ('k',)"),
        ({"primary_key": ("k", "k")}, "a column is named twice (k, k)"),
        ({"invariant": True, "append_only": True}, "both invariant and append_only"),
        ({"foreign_keys": (ForeignKey(("k",), "o"),) * 2}, "a foreign key is declared twice. Remove one"),
    ],
)
def test_declarations_that_contradict_themselves(arguments: dict[str, Any], fault: str) -> None:
    """Refused when they are written."""
    for make in (lambda: Delta("x", **arguments), lambda: Files("x", "csv", "k INT", **arguments)):
        with pytest.raises(SourceError) as refusal:
            make()
        assert fault in str(refusal.value)
    with pytest.raises(SourceError, match="foreign key to o: no column is named"):
        ForeignKey((), "o")


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        (T, D, True),
        (where(T, "q > 1"), project(where(D, "k2 > 1"), K2), True),
        (Join(left=T, right=D, kind="left", condition=None), D, True),
        (Union((T, T)), D, False),
        (grouped(T, (K,)), D, False),
        (T, grouped(D, (K2,)), False),
        (T, Join(left=D, right=D_AGAIN, kind="inner", condition=None), False),
        (project(T, Item(K, Sql("k + 1", "int", frozenset({"k"})))), D, False),
    ],
)
def test_operators_that_pass_a_reference_on(left: Plan, right: Plan, found: bool) -> None:
    """The referring columns must be unchanged, and the referred rows read one by one."""
    assert (find_reference(FACTS, left, right, EQUAL) is not None) is found


def test_only_equalities_of_the_whole_key_refer() -> None:
    """Columns of a composite key from two occurrences of a source do not refer to one row."""
    facts = (PrimaryKeyFact("d", ("k2", "name")), ForeignKeyFact("t", ("K", "Q"), "d", ("k2", "name")))
    name = Column("name", "string")
    whole = (*EQUAL, (Reference(Q), Reference(name)))
    assert find_reference(facts, T, D, whole) is not None
    assert find_reference(facts, T, D, EQUAL) is None
    assert find_reference(facts, T, D, ((opaque("k"), Reference(K2)), *whole[1:])) is None
    again = SourceRead("t", tuple((field, Column(f"{column.name}_2", column.type)) for field, column in T.fields))
    twice = Join(left=T, right=again, kind="inner", condition=None)
    assert find_reference(facts, twice, D, (*EQUAL, (Reference(Column("q_2", "int")), Reference(name)))) is None


def test_rank_inputs() -> None:
    """The query's order as far as possible; a cycle is broken."""
    assert rank_inputs(3, []) == (0, 1, 2)
    assert rank_inputs(3, [(2, 0), (1, 2)]) == (2, 0, 1)
    assert sorted(rank_inputs(2, [(0, 1), (1, 0)])) == [0, 1]
