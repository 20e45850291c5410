"""The closed family of monoids as a table: what merges, under which name, with or without inverse. No Spark."""

from __future__ import annotations

import re
import string

import pytest

from incremental.algebra.exact import LIMBS
from incremental.algebra.monoids import Monoid, monoid

INTEGERS = ("tinyint", "smallint", "int", "bigint")
DECIMALS = ("decimal(1,0)", "decimal(12,2)", "decimal(26,6)", "decimal(27,6)", "decimal(38,0)", "decimal(38,18)")
FLOATS = ("float", "double")
ORDERED = ("boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "array<int>", "STRUCT<A: INT>")
NUMBERS = INTEGERS + DECIMALS + FLOATS

# function: (types of its arguments, name, invertible, buffers of Spark's aggregate)
FAMILY: list[tuple[str, tuple[str, ...], str, bool, int]] = [
    *[("count", (type_,), "count", True, 1) for type_ in NUMBERS + ORDERED],
    ("count", ("int", "string"), "count", True, 1),
    *[("sum", (type_,), "sum", True, 1) for type_ in INTEGERS],
    *[("sum", (type_,), "sum", True, 2) for type_ in DECIMALS],
    *[("sum", (type_,), "sum", False, 1) for type_ in FLOATS],
    *[("average", (type_,), "avg", type_ not in FLOATS, 2) for type_ in NUMBERS],
    *[(f, (type_,), f, False, 1) for f in ("min", "max") for type_ in NUMBERS + ORDERED],
    *[(f"{f}by", (v, o), f"{f}_by", False, 2) for f in ("min", "max") for v in ("int", "array<int>") for o in ORDERED],
    *[(f"bit{f}agg", (type_,), f"bit_{f}", False, 1) for f in ("and", "or") for type_ in INTEGERS],
    *[("bitxoragg", (type_,), "bit_xor", True, 1) for type_ in INTEGERS],
    *[(f, (type_,), "moments", type_ in INTEGERS[:3], 3)
      for f in ("stddevsamp", "stddevpop", "variancesamp", "variancepop") for type_ in (*INTEGERS, "double")],
    *[(f, ("int", "double"), "comoments", False, 4) for f in ("covsample", "covpopulation")],
    ("corr", ("double", "double"), "comoments", False, 6),
]  # fmt: skip
NO_MONOID = [
    ("sum", ("interval day to second",)),
    ("average", ("interval day to second",)),
    ("maxby", ("map<int,int>", "int")),
    ("maxby", ("STRUCT<M: MAP<INT, INT>>", "int")),
    ("minby", ("variant", "int")),
    ("maxby", ("array<variant>", "int")),
    *[(f, ("double",)) for f in ("percentile", "approxpercentile", "skewness", "kurtosis", "first", "last", "mode")],
    *[(f, ("int",)) for f in ("collectlist", "collectset", "hyperloglogplusplus", "pythonudaf")],
]


def found(function: str, types: tuple[str, ...], buffers: int) -> Monoid:
    result = monoid(function, types, "ansi", buffers)
    assert result is not None, (function, types)
    return result


def fields(template: str) -> set[str]:
    """The placeholders of a template: `x`, `t[n]`, `s`."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


@pytest.mark.parametrize(("function", "types", "name", "invertible", "buffers"), FAMILY)
def test_member(function: str, types: tuple[str, ...], name: str, invertible: bool, buffers: int) -> None:
    """A member that loses its inverse, or a buffer of Spark's, breaks maintenance in silence."""
    member = found(function, types, buffers)
    assert (member.name, member.invertible, len(member.buffers)) == (name, invertible, buffers)


@pytest.mark.parametrize(("function", "types"), NO_MONOID)
def test_stranger(function: str, types: tuple[str, ...]) -> None:
    """What cannot be merged must be refused, not guessed."""
    assert monoid(function, types, "ansi", 1) is None


@pytest.mark.parametrize(("function", "types", "buffers"), [(f, t, b) for f, t, _, _, b in FAMILY])
def test_templates_fit_together(function: str, types: tuple[str, ...], buffers: int) -> None:
    """Every placeholder is filled by somebody, and every column can be told from the others in the state's table."""
    member = found(function, types, buffers)
    stored = {part.name for part in member.parts}
    seen = stored | {part.name for part in member.watched}
    assert len(stored) == len(member.parts)
    assert not any("_" in name for name in seen), "columns are named __<answer>_<part>"
    arguments = {"w", "x", "y"} if len(types) == 2 else {"w", "x"}
    for part in (*member.parts, *member.watched):
        assert fields(part.lift) <= arguments
        assert part.type
    for part in member.parts:
        assert {f"t[{part.name}]", f"u[{part.name}]"} <= fields(part.merge)
        assert fields(part.merge) <= {f"{side}[{name}]" for side in "tu" for name in stored}
        assert part.zero == "NULL" or not member.invertible or part.zero == "0"
    for template in member.buffers:
        assert fields(template) <= stored
    reads = {f"t[{name}]" for name in stored} | {f"u[{name}]" for name in seen}
    assert fields(member.disturbed or "") <= reads
    assert bool(member.watched) == (not member.invertible)


def test_zero_of_invertible_members_is_a_value() -> None:
    """Groups whose change is all zeros are not merged; NULL would never equal a sum."""
    for function, types, _, invertible, buffers in FAMILY:
        if invertible:
            assert all(part.zero == "0" for part in found(function, types, buffers).parts), function


@pytest.mark.parametrize("mode", ["ansi", "legacy", "try"])
def test_overflow_mode_is_in_the_answer_only(mode: str) -> None:
    """What is stored must not depend on the mode: only the total decides whether Spark's sum overflows."""
    ansi, other = (monoid("sum", ("bigint",), m, 1) for m in ("ansi", mode))
    assert ansi is not None and other is not None
    assert ansi.parts == other.parts
    assert ("try_cast" in other.buffers[0]) == (mode == "try")


@pytest.mark.parametrize("type_", DECIMALS)
def test_decimal_sums_are_stored_with_their_scale(type_: str) -> None:
    """Spark gives up scale beyond 38 digits, and a merge would round."""
    part = found("sum", (type_,), 2).parts[0]
    scale = re.findall(r"\d+", type_)[1]
    assert part.type == f"decimal(37,{scale})"


def test_double_sums_are_windows_and_a_rest() -> None:
    """The windows are what makes them exact; the rest takes what does not fit."""
    names = [part.name for part in found("sum", ("double",), 1).parts]
    assert names == [*(f"e{i}" for i in range(LIMBS)), "rest", "n"]


def test_ambiguous_answers_say_how_they_are_settled() -> None:
    """Spark leaves the value among equal orders open."""
    said = {name: found(name, ("int", "date"), 2).ambiguous or "" for name in ("minby", "maxby")}
    assert "smallest" in said["minby"] and "largest" in said["maxby"]
    assert found("max", ("int",), 1).ambiguous is None
