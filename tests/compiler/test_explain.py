"""Explain: deterministic lines from a program alone, before any data is touched. Whole texts: tests/language/golden."""

from __future__ import annotations

from deltafold.algebra.constraints import AppendOnlyFact, ForeignKeyFact, PrimaryKeyFact
from deltafold.algebra.errors import Refusal
from deltafold.algebra.plan import Column, Join, Plan, Reference
from deltafold.compiler.compile import PASSES, compile_query
from deltafold.compiler.explain import explain_passes, explain_program, explain_refusal
from deltafold.compiler.passes.explain_rules import explain_rules
from tests.compiler.plans import K2, NAME, D, K, Q, T, V, call, draft, grouped, opaque, project, where

SUM = call("s", "sum", V, type_="double")
N = Column("n", "bigint")


def lines(plan: Plan, *outputs: Column, invariant: tuple[str, ...] = (), views: tuple[str, ...] = ()) -> list[str]:
    named = [(column, column.name.upper()) for column in outputs]
    options = {"invariant": frozenset(invariant), "views": frozenset(views)}
    text = explain_program("totals", compile_query(draft(plan, *named, **options)))
    return [" ".join(line.split()) for line in text.splitlines()]


def test_head_states_answer_and_columns() -> None:
    """The first questions of a user: is it incremental, what is stored, where is the answer."""
    shown = lines(grouped(T, (K,), SUM, call("hi", "max", V)), K, SUM.column)
    assert shown[0] == "view totals: incremental (fingerprint 0123)"
    assert shown[2:4] == [
        "state_1: lineage key (k), buckets by k",
        "keeps group row count; s: sum; hi: max",
    ]
    assert shown[5].startswith("answer: columns of state_1, one MERGE and one commit")
    assert shown[6] == "columns: K int, S double"


def test_each_node_has_its_rule() -> None:
    """From the answer down to the sources; a view among them is named as one."""
    plan = grouped(
        Join(left=where(T, "v > 0"), right=D, kind="left", condition=opaque("k = k2")), (NAME,), call("n", "count", V)
    )
    shown = [line.partition(" | ") for line in lines(plan, NAME, invariant=("d",), views=("d",))[-5:]]
    assert [node for node, _, _ in shown] == [
        "group by name: count(v)", "left join on k = k2", "filter v > 0", "source t (K, Q, V)", "view d (k2, name)",
    ]  # fmt: skip
    rules = [rule for _, _, rule in shown]
    assert "deletions subtract" in rules[0] and "d does not change" in rules[1] and rules[2] == "linear"
    assert "added or removed" in rules[3] and "invariant" in rules[4]


def test_a_term_that_a_foreign_key_empties_is_named() -> None:
    """With its reason; from the other side only new rows need no comparison."""
    keys = ((Reference(K), Reference(K2), False),)
    swapped = ((Reference(K2), Reference(K), False),)
    condition = opaque("k = k2")
    facts = (PrimaryKeyFact("d", ("k2",)), ForeignKeyFact("t", ("K",), "d", ("k2",)))

    def rule(plan: Join) -> str:
        shown = explain_rules(draft(grouped(plan, (K,), call("n", "count", V)), facts=facts)).node_rules
        return next(verdict.rule for verdict in shown if "join" in verdict.node)

    assert "no term for d if its rows were only added or only removed" in rule(
        Join(left=T, right=D, kind="inner", condition=condition, keys=keys)
    )
    assert "no term for d if" in rule(Join(left=D, right=T, kind="right", condition=condition, keys=swapped))
    assert "new rows of d match no existing row of t (foreign key K)" in rule(
        Join(left=D, right=T, kind="left", condition=condition, keys=swapped)
    )
    assert "foreign key" not in rule(Join(left=T, right=D, kind="inner", condition=condition))
    facts = (*facts, AppendOnlyFact("d"))
    assert "no term for d: " in rule(Join(left=T, right=D, kind="left", condition=condition, keys=keys))


def test_distinct_rows_by_a_primary_key_need_no_state() -> None:
    """A filter or a projection that keeps the key keeps them distinct; a join below it does not."""
    facts = (PrimaryKeyFact("d", ("k2",)),)
    shown = compile_query(draft(grouped(where(D, "k2 > 1"), (K2, NAME)), K2, facts=facts))
    assert (shown.states, len(shown.constraints)) == ((), 1)
    assert "distinct k2, name" in shown.notes[0] and "d: primary key (k2)" in shown.notes[0]
    for plan in (grouped(D, (NAME,)), grouped(Join(left=D, right=T, kind="inner", condition=None), (K2,))):
        assert compile_query(draft(plan, facts=facts)).states


def test_a_rewritten_query_is_shown_as_it_is_maintained() -> None:
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


def test_notes_come_last() -> None:
    """Rules that settle what Spark leaves open."""
    shown = lines(grouped(T, (K,), call("a", "minby", V, Q)), K)
    assert [x for x in shown if x.startswith("note:")] == shown[-1:]
    assert "smallest value" in shown[-1]


def test_refusals_show_the_consequence() -> None:
    """A fallback is always reported."""
    reasons = (Refusal("LIMIT 3", "it depends on all rows", "drop it"),)
    why = "  LIMIT 3 cannot be maintained incrementally: it depends on all rows. Instead: drop it."
    assert explain_refusal("v", reasons, "auto") == f"view v: recompute at each refresh (policy auto)\n{why}"
    assert explain_refusal("v", reasons) == f"view v: refused\n{why}"


def test_trace_shows_the_plan_after_each_pass() -> None:
    """A wrong plan is found by the pass that made it."""
    shown = explain_passes(draft(grouped(T, (K,), call("n", "count", V, distinct=True)))).splitlines()
    heads = [line.split(":")[0] for line in shown if not line.startswith(" ")]
    assert heads == ["translated", *(each.__name__ for each in PASSES)]
    assert shown[1:3] == ["  group by k: count(DISTINCT v)", "    source t (K, Q, V)"]
    assert shown[shown.index("expand_distinct:") + 2] == "    distinct k, v"
    assert "drop_keyed_distinct: no change" in shown
    assert "  state_1 by (k, v):" in shown and any(line.startswith("  publish columns of state_2") for line in shown)


def test_trace_of_a_refused_query_ends_at_the_refusal() -> None:
    """The passes after it have nothing to show."""
    shown = explain_passes(draft(T, refusals=(Refusal("rand()", "it varies", "use a hash"),))).splitlines()
    assert shown[-2] == "refuse_unmaintainable: refused"
    assert shown[-1].startswith("  rand() cannot be maintained")
