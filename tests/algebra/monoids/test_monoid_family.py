"""The closed family of accumulators as a table: what merges, under which name, with or without inverse. No Spark."""

from __future__ import annotations

import re
import string

import pytest

from deltafold.algebra.monoids.family import infer_monoid
from deltafold.algebra.monoids.kinds import Group, Mergeable, Monoid, Recomputed, recompute_condition, store_answer
from deltafold.algebra.monoids.sums import WINDOWS

INTEGERS = ("tinyint", "smallint", "int", "bigint")
DECIMALS = ("decimal(1,0)", "decimal(12,2)", "decimal(26,6)", "decimal(27,6)", "decimal(38,0)", "decimal(38,18)")
FLOATS = ("float", "double")
ORDERED = ("boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "array<int>", "STRUCT<A: INT>")
NUMBERS = INTEGERS + DECIMALS + FLOATS

# function, types of its arguments, name, kind, buffers of Spark's aggregate
FAMILY: list[tuple[str, tuple[str, ...], str, type, int]] = [
    *[("count", (type_,), "count", Group, 1) for type_ in NUMBERS + ORDERED],
    ("count", ("int", "string"), "count", Group, 1),
    *[("sum", (type_,), "sum", Group, 1) for type_ in INTEGERS],
    *[("sum", (type_,), "sum", Group, 2) for type_ in DECIMALS],
    *[("sum", (type_,), "sum", Monoid, 1) for type_ in FLOATS],
    *[("average", (type_,), "avg", Monoid if type_ in FLOATS else Group, 2) for type_ in NUMBERS],
    *[(f, (type_,), f, Monoid, 1) for f in ("min", "max") for type_ in NUMBERS + ORDERED],
    *[(f"{f}by", (v, o), f"{f}_by", Monoid, 2) for f in ("min", "max") for v in ("int", "array<int>") for o in ORDERED],
    *[(f"bit{f}agg", (type_,), f"bit_{f}", Monoid, 1) for f in ("and", "or") for type_ in INTEGERS],
    *[("bitxoragg", (type_,), "bit_xor", Group, 1) for type_ in INTEGERS],
    *[(f, (type_,), "moments", Group if type_ in INTEGERS[:3] else Monoid, 3)
      for f in ("stddevsamp", "stddevpop", "variancesamp", "variancepop") for type_ in (*INTEGERS, "double")],
    *[(f, ("int", "double"), "comoments", Monoid, 4) for f in ("covsample", "covpopulation")],
    ("corr", ("double", "double"), "comoments", Monoid, 6),
]  # fmt: skip
NOT_MERGEABLE = [
    ("sum", ("interval day to second",)),
    ("average", ("interval day to second",)),
    ("maxby", ("map<int,int>", "int")),
    ("maxby", ("STRUCT<M: MAP<INT, INT>>", "int")),
    ("minby", ("variant", "int")),
    ("maxby", ("array<variant>", "int")),
    *[(f, ("double",)) for f in ("percentile", "approxpercentile", "skewness", "kurtosis", "first", "last", "mode")],
    *[(f, ("int",)) for f in ("collectlist", "collectset", "hyperloglogplusplus", "pythonudaf")],
]


def infer(function: str, types: tuple[str, ...], buffers: int) -> Mergeable:
    found = infer_monoid(function, types, "ansi", buffers)
    assert found is not None, (function, types)
    return found


def placeholders(template: str) -> set[str]:
    """The placeholders of a template: `x`, `t[n]`, `s`."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


@pytest.mark.parametrize(("function", "types", "name", "kind", "buffers"), FAMILY)
def test_member(function: str, types: tuple[str, ...], name: str, kind: type, buffers: int) -> None:
    """A member that loses its inverse, or a buffer of Spark's, makes views wrong without any error."""
    member = infer(function, types, buffers)
    assert (member.name, type(member), len(member.buffers)) == (name, kind, buffers)


@pytest.mark.parametrize(("function", "types"), NOT_MERGEABLE)
def test_aggregates_that_do_not_merge(function: str, types: tuple[str, ...]) -> None:
    """Their groups must be recomputed."""
    assert infer_monoid(function, types, "ansi", 1) is None


@pytest.mark.parametrize(("function", "types", "buffers"), [(f, t, b) for f, t, _, _, b in FAMILY])
def test_templates_fit_together(function: str, types: tuple[str, ...], buffers: int) -> None:
    """Every placeholder is filled, and every column has a name of its own in the state's table."""
    member = infer(function, types, buffers)
    stored = {component.name for component in member.components}
    known = stored | {component.name for component in member.watched}
    assert len(stored) == len(member.components)
    assert not any("_" in name for name in known), "columns are named __<answer>_<component>"
    arguments = {"w", "x", "y"} if len(types) == 2 else {"w", "x"}
    for component in (*member.components, *member.watched):
        assert placeholders(component.lift) <= arguments
        assert component.type
    for component in member.components:
        assert {f"t[{component.name}]", f"u[{component.name}]"} <= placeholders(component.merge)
        assert placeholders(component.merge) <= {f"{side}[{name}]" for side in "tu" for name in stored}
    for template in member.buffers:
        assert placeholders(template) <= stored
    reads = {f"t[{name}]" for name in stored} | {f"u[{name}]" for name in known}
    assert placeholders(recompute_condition(member) or "") <= reads
    assert bool(member.watched) == isinstance(member, Monoid)
    if isinstance(member, Monoid):
        assert placeholders(member.may_recompute_sql) <= {f"u[{name}]" for name in known}


def test_the_zero_of_a_group_is_a_value() -> None:
    """Groups of rows whose change is all zeros are not merged; NULL would never equal a sum."""
    for function, types, _, kind, buffers in FAMILY:
        if kind is Group:
            assert all(component.zero == "0" for component in infer(function, types, buffers).components), function


def test_each_kind_says_when_a_group_is_recomputed() -> None:
    """A refresh decides by this alone which groups it reads again."""
    assert recompute_condition(infer("sum", ("int",), 1)) is None
    assert "gone" in (recompute_condition(infer("max", ("int",), 1)) or "")
    assert recompute_condition(store_answer("int")) == "true"
    assert isinstance(store_answer("int"), Recomputed)


@pytest.mark.parametrize("mode", ["ansi", "legacy", "try"])
def test_overflow_mode_is_in_the_answer_only(mode: str) -> None:
    """What is stored must not depend on the mode: only the total decides whether Spark's sum overflows."""
    ansi, other = (infer_monoid("sum", ("bigint",), m, 1) for m in ("ansi", mode))
    assert ansi is not None and other is not None
    assert ansi.components == other.components
    assert ("try_cast" in other.buffers[0]) == (mode == "try")


@pytest.mark.parametrize("type_", DECIMALS)
def test_decimal_sums_are_stored_with_their_scale(type_: str) -> None:
    """Spark loses scale beyond 38 digits, and a merge would round."""
    component = infer("sum", (type_,), 2).components[0]
    scale = re.findall(r"\d+", type_)[1]
    assert component.type == f"decimal(37,{scale})"


def test_double_sums_are_windows_and_a_rest() -> None:
    """The windows make them exact; the rest takes the values that do not fit."""
    names = [component.name for component in infer("sum", ("double",), 1).components]
    assert names == [*(f"e{i}" for i in range(WINDOWS)), "rest", "n"]


def test_tie_rules() -> None:
    """Spark leaves open which value it takes among equal orders."""
    rules = {name: infer(name, ("int", "date"), 2) for name in ("minby", "maxby", "max")}
    found = {name: rule.tie_rule for name, rule in rules.items() if isinstance(rule, Monoid)}
    assert "smallest" in (found["minby"] or "") and "largest" in (found["maxby"] or "")
    assert found["max"] is None
