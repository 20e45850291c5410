"""Explain: deterministic lines from a program alone, before any data is touched. Whole texts: tests/language/golden."""

from __future__ import annotations

from incremental.algebra.constraints import AppendOnlyFact, ForeignKeyFact, PrimaryKeyFact
from incremental.algebra.errors import Refusal
from incremental.algebra.plan import Column, Join, Plan, Reference
from incremental.compiler.compile import compiled
from incremental.compiler.explain import explain, explain_refusal
from incremental.compiler.verdicts import verdicts
from tests.compiler.plans import K2, NAME, D, K, Q, T, V, call, grouped, opaque, project, where

SUM = call("s", "sum", V, type_="double")
N = Column("n", "bigint")


def lines(plan: Plan, *outputs: Column, invariant: tuple[str, ...] = ()) -> list[str]:
    named = tuple((column, column.name.upper()) for column in outputs)
    text = explain("totals", compiled(plan, named, "0123", [], frozenset(invariant)))
    return [" ".join(line.split()) for line in text.splitlines()]


def test_head_states_answer_and_columns() -> None:
    """What a user looks for first: is it incremental, what is kept, where the answer is."""
    shown = lines(grouped(T, (K,), SUM, call("hi", "max", V)), K, SUM.column)
    assert shown[0] == "view totals: incremental (fingerprint 0123)"
    assert shown[2:4] == [
        "state_1: lineage key (k), buckets by k",
        "keeps group row count; s: sum; hi: max",
    ]
    assert shown[5].startswith("answer: columns of state_1, one MERGE and one commit")
    assert shown[6] == "columns: K int, S double"


def test_each_node_has_its_rule() -> None:
    """From the answer down to the sources, with the side of a join that stands still."""
    plan = grouped(Join(where(T, "v > 0"), D, "left", opaque("k = k2")), (NAME,), call("n", "count", V))
    assert lines(plan, NAME, invariant=("d",))[-5:] == [
        "group by name: count(v) | count(v): count, deletions subtract",
        "left join on k = k2 | linear: d does not change",
        "filter v > 0 | linear",
        "source t (K, Q, V) | files that left or came between two versions",
        "source d (k2, name) | declared invariant: no term",
    ]


def test_a_term_that_a_foreign_key_empties_is_named() -> None:
    """With its reason; from the other side only the new rows need not be compared."""
    facts = (PrimaryKeyFact("d", ("k2",)), ForeignKeyFact("t", ("K",), "d", ("k2",)))
    keys = ((Reference(K), Reference(K2), False),)
    swapped = ((Reference(K2), Reference(K), False),)
    condition = opaque("k = k2")

    def rule(plan: Join) -> str:
        shown = verdicts(grouped(plan, (K,), call("n", "count", V)), frozenset(), facts)
        return next(verdict.rule for verdict in shown if "join" in verdict.node)

    reason = "t that were there refer to no new d (foreign key K)"
    assert rule(Join(T, D, "inner", condition, keys)).endswith(
        f"; no term for d where its rows only came, or only left: {reason}"
    )
    assert rule(Join(D, T, "right", condition, swapped)).endswith(reason)
    assert rule(Join(D, T, "left", condition, swapped)).endswith("; new d meet no t that were there (foreign key K)")
    assert "foreign key" not in rule(Join(T, D, "inner", condition))
    facts = (*facts, AppendOnlyFact("d"))
    assert rule(Join(T, D, "left", condition, keys)).endswith(f"; no term for d: {reason}")


def test_distinct_rows_by_a_primary_key_keep_nothing() -> None:
    """A filter or a projection that keeps the key leaves them different; a join below it does not."""
    facts = (PrimaryKeyFact("d", ("k2",)),)
    shown = compiled(grouped(where(D, "k2 > 1"), (K2, NAME)), ((K2, "k"),), "f", [], frozenset(), constraints=facts)
    assert (shown.states, len(shown.constraints)) == ((), 1)
    assert shown.notes == ("distinct k2, name keeps no state: its rows differ (d: primary key (k2))",)
    for plan in (grouped(D, (NAME,)), grouped(Join(D, T, "inner", None), (K2,))):
        assert compiled(plan, ((plan.keys[0], "k"),), "f", [], frozenset(), constraints=facts).states


def test_rewritten_query_is_shown_as_it_is_maintained() -> None:
    """count(distinct) is a group-by one level down; a total is a state of one row."""
    inner = grouped(T, (K, Q), call("n", "count", V, distinct=True))
    shown = lines(where(grouped(project(inner, Q, N), (), call("m", "max", N)), "m > 1"), Column("m", "bigint"))
    assert [line for line in shown if line.startswith("state_")] == [
        "state_1: lineage key (k, q, v), buckets by k, q",
        "state_2: lineage key (k, q), buckets by k, q",
        "state_3: lineage key () (one row), buckets by none",
    ]
    assert any(line.startswith("distinct k, q, v | group row count crossing zero") for line in shown)
    assert any(line.startswith("answer: a table of its own") for line in shown)


def test_notes_name_what_spark_leaves_open() -> None:
    """max_by among equal orders: said once, although two columns ask for it."""
    shown = lines(grouped(T, (K,), call("a", "minby", V, Q), call("b", "minby", V, Q)), K)
    assert [x for x in shown if x.startswith("note:")] == [shown[-1]]
    assert shown[-1] == "note: minby(v, q): the smallest value is taken among equal orders"


def test_refusals_say_what_happens_then() -> None:
    """Nothing falls back in silence."""
    reasons = (Refusal("LIMIT 3", "it depends on all rows", "drop it"),)
    why = "  LIMIT 3 cannot be maintained incrementally: it depends on all rows. Instead: drop it."
    assert explain_refusal("v", reasons, "auto") == f"view v: recompute at each refresh (policy auto)\n{why}"
    assert explain_refusal("v", reasons) == f"view v: refused\n{why}"
