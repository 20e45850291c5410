"""Define minima, maxima and bitwise aggregates, most of which have no inverse."""

from __future__ import annotations

from deltafold.algebra.monoids.kinds import Component, Group, Monoid
from deltafold.algebra.monoids.sums import COUNT_X, DELETED_X
from deltafold.algebra.sqltext import is_unordered


def extreme(function: str, type_: str) -> Monoid:
    """Return min or max; a deletion matters only if it reaches the current extreme."""
    pick, reaches = ("least", "<=") if function == "min" else ("greatest", ">=")
    kept = Component("m", type_, f"{function}(if({{w}} > 0, {{x}}, NULL))", f"{pick}({{t[m]}}, {{u[m]}})")
    deleted = Component("gone", type_, f"{function}(if({{w}} < 0, {{x}}, NULL))", "")
    replaced = f"coalesce({{u[m]}} {reaches} {{u[gone]}}, false)"  # by an inserted value that is as good
    condition = f"coalesce({{u[gone]}} {reaches} {{t[m]}}, false) AND NOT {replaced}"
    open_question = f"{{u[gone]}} IS NOT NULL AND NOT {replaced}"
    deletions = f"deleting the current {function} recomputes the group"
    return Monoid(
        function, (kept,), ("{m}",), (deleted,), condition, deletions=deletions, may_recompute_sql=open_question
    )


def extreme_by(function: str, value: str, order: str) -> Monoid | None:
    """Return min_by or max_by as the extreme of (order, value): the value breaks ties between equal orders."""
    if is_unordered(value):
        return None
    inner = extreme(function.removesuffix("by"), f"STRUCT<o: {order}, v: {value}>")
    components, watched = (tuple(map(over_pairs, each)) for each in (inner.components, inner.watched))
    rule = f"the {'smallest' if function == 'minby' else 'largest'} value is taken among equal orders"
    return Monoid(
        f"{inner.name}_by", components, ("{m}.v", "{m}.o"), watched, inner.needs_recompute_sql,
        deletions=inner.deletions, tie_rule=rule, may_recompute_sql=inner.may_recompute_sql,
    )  # fmt: skip


def over_pairs(component: Component) -> Component:
    """Return the component over pairs (order, value) of the rows that have an order."""
    lift = component.lift.replace("> 0,", "> 0 AND {y} IS NOT NULL,").replace("< 0,", "< 0 AND {y} IS NOT NULL,")
    lift = lift.replace("{x}", "named_struct('o', {y}, 'v', {x})")
    return Component(component.name, component.type, lift, component.merge)


def bitwise(function: str, type_: str) -> Monoid:
    """Return bit_and or bit_or: idempotent, without inverse."""
    name, operator = ("bit_and", "&") if function == "bitandagg" else ("bit_or", "|")
    merge = f"coalesce({{t[m]}} {operator} {{u[m]}}, {{t[m]}}, {{u[m]}})"
    kept = Component("m", type_, f"{name}(if({{w}} > 0, {{x}}, NULL))", merge)
    return Monoid(name, (kept,), ("{m}",), (DELETED_X,), "{u[gone]} > 0")


def exclusive_or(type_: str) -> Group:
    """Return bit_xor: its own inverse, so only odd weights count."""
    zero = f"CAST(0 AS {type_})"
    lift = f"coalesce(bit_xor(if({{w}} % 2 <> 0, {{x}}, NULL)), {zero})"
    kept = Component("m", type_, lift, "{t[m]} ^ {u[m]}", "0")
    return Group("bit_xor", (kept, COUNT_X), ("if({n} = 0, NULL, {m})",))
