"""Layers of a random query that read a second input: joins of every kind, subqueries, set operations."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.properties.relation import DIMENSION, EVENTS, INTEGERS, Draw, Relation, condition

OTHER = {"ok": "int", "oi": "int", "oe": "decimal", "os": "string"}  # some columns of `events`, for joins with itself
KINDS = ("inner", "left", "right", "full", "left semi", "left anti", "inner", "cross")
ON = ("{0} = {1}", "{0} <=> {1}", "{0} = {1} and {2} > 1", "{0} < {2}", "{0} between {1} and {2}")


def second(draw: Draw, relation: Relation) -> tuple[str, dict[str, str], str, str] | None:
    """Another input: its SQL, its columns and two integer columns of it; None where it occurs already."""
    if "dk" not in relation.columns and draw(st.booleans()):
        return "dim", DIMENSION, "dk", "w"
    if "ok" in relation.columns:
        return None
    sql = f"select k as ok, i as oi, e as oe, q as os from events where {condition(draw, Relation('', EVENTS))}"
    return f"({sql})", OTHER, "ok", "oi"


def joined(draw: Draw, relation: Relation) -> Relation:
    """With the dimension or with the events again: NULL keys, double keys, keys nobody has, no key at all."""
    keys, other = relation.of(*INTEGERS), second(draw, relation)
    if not keys or other is None:
        return relation
    sql, columns, key, number = other
    kind = draw(st.sampled_from(KINDS))
    added = {} if kind in ("left semi", "left anti") else columns
    on = draw(st.sampled_from(ON)).format(draw(st.sampled_from(keys)), key, number)
    match = "" if kind == "cross" else f" on {on}"
    return Relation(f"select * from ({relation.sql}) r {kind} join {sql} o{match}", {**relation.columns, **added})


def tested(draw: Draw, relation: Relation) -> Relation:
    """By a subquery in WHERE: quantified, negated, under OR, compared with a scalar."""
    keys = relation.of(*INTEGERS)
    if not keys:
        return relation
    key = draw(st.sampled_from(keys))
    test = draw(
        st.sampled_from(
            [
                "exists (select 1 from dim d where d.dk = r.{0})",
                "not exists (select 1 from dim d where d.dk = r.{0} and d.w > 1)",
                "{0} in (select dk from dim)",
                "{0} not in (select dk from dim)",
                "{0} in (select d.w from dim d join events e on e.k = d.dk)",
                "not exists (select 1 from dim d join events e on e.k <=> d.dk where e.i = r.{0} and d.w > 0)",
                "{0} < 2 or {0} in (select e.i from events e left join dim d on e.k = d.dk where d.w is null)",
                "{0} not in (select dk from dim where dk is not null)",
                "{0} = 1 or exists (select 1 from dim d where d.dk = r.{0})",
                "{0} is null or {0} not in (select k from events where k > 0)",
                "exists (select 1 from dim d where d.dk = r.{0} and exists (select 1 from events e where e.i = d.w))",
                "{0} in (select d.dk from dim d where not exists (select 1 from events e where e.k = d.w))",
                "{0} >= (select avg(w) from dim)",
                "{0} < (select max(w) from dim d where d.dk = r.{0})",
                "(select count(*) from events e where e.k = r.{0}) > 2",
            ]
        )
    )
    return Relation(f"select * from ({relation.sql}) r where {test.format(key)}", relation.columns)


def looked_up(draw: Draw, relation: Relation) -> Relation:
    """A scalar subquery or a lateral join in the select list."""
    keys = relation.of(*INTEGERS)
    if not keys or "lu" in relation.columns:
        return relation
    value = draw(
        st.sampled_from(
            [
                "(select max(name) from dim d where d.dk = r.{0})",
                "(select min(name) from dim)",
                "(select max(e.q) from events e where e.i = r.{0})",
            ]
        )
    )
    sql = f"select *, {value.format(draw(st.sampled_from(keys)))} as lu from ({relation.sql}) r"
    return Relation(sql, {**relation.columns, "lu": "string"})


def combined(draw: Draw, relation: Relation) -> Relation:
    """Two parts of the rows by a set operation, on columns that can be compared."""
    names = [name for name in relation.exact if name != "u"][:4]
    if not names:
        return relation
    operation = draw(
        st.sampled_from(["union", "intersect", "except", "intersect all", "except all", "union all", "minus all"])
    )
    sides = (f"select {', '.join(names)} from ({relation.sql}) where {condition(draw, relation)}" for _ in range(2))
    return Relation(f" {operation} ".join(f"({side})" for side in sides), {n: relation.columns[n] for n in names})
