"""Algebra room: the closed family of mergeable aggregates (MRQL section 7, diminishing in section 11).

In: an aggregate's function and the types of its arguments. Out: its `Monoid`: the columns kept per group, how h lifts a
weighted row into them, how ⊗ merges two of them, and what Spark's own final expression (the answer a) reads.

All of it is SQL text that Spark evaluates. In a lift `{x}` and `{y}` are the arguments and `{w}` the weight of a row;
in a merge `{t[n]}` is column n of the stored state and `{u[n]}` of the change; in a buffer `{n}` is column n.
A column that is only *watched* is computed from the change and not stored: it tells whether a deletion can have changed
a monoid without inverse, in which case the group is recomputed from its rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from incremental.algebra import exact
from incremental.algebra.datatypes import orderless

EXACTLY = "subtract exactly, but of NaN, infinities and values that do not fit recompute their group"
OUTGROWN = "a sum of decimals outgrew 37 digits"  # spark/java_errors.py says what to do
INTEGRAL = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Part:
    """One column of a monoid: its suffix and type, h's lift, ⊗'s merge, and the zero of an empty group."""

    name: str
    type: str
    lift: str
    merge: str
    zero: str = "NULL"


@dataclass(frozen=True)
class Monoid:
    """A mergeable aggregate.

    parts: stored columns; buffers: SQL over the parts for each buffer of Spark's own aggregate;
    watched: columns of the change alone; disturbed: SQL telling that a deletion may have changed the group;
    unit: rows must have weight 1 or -1; ambiguous: what Spark leaves open and how we settle it;
    whole: partial values do not merge, so the group's answer itself is kept, and computed anew at every change.
    """

    name: str
    parts: tuple[Part, ...]
    buffers: tuple[str, ...]
    watched: tuple[Part, ...] = ()
    disturbed: str | None = None
    unit: bool = False
    ambiguous: str | None = None
    reach: str = "recompute the groups they reach"
    whole: bool = False

    @property
    def invertible(self) -> bool:
        """Whether deletions subtract, so that no group is ever recomputed."""
        return self.disturbed is None

    @property
    def deletions(self) -> str:
        """What deletions do, in words."""
        return "subtract" if self.invertible else self.reach


def recomputed(type_: str) -> Monoid:
    """An aggregate without a merge (median, collect_list): its answer, of all rows of the group."""
    answer = Part("v", type_, "", "{u[v]}")
    return Monoid("no merge", (answer,), (), disturbed="true", reach="and insertions recompute their group", whole=True)


def additive(name: str, type_: str, value: str) -> Part:
    """A column that is a sum of `value` over rows, each counted with its weight."""
    return Part(name, type_, f"coalesce(sum({value}), 0)", f"{{t[{name}]}} + {{u[{name}]}}", "0")


COUNT_X = additive("n", "bigint", "if({x} IS NULL, 0L, {w})")


def monoid(function: str, types: tuple[str, ...], mode: str, buffers: int) -> Monoid | None:
    """The monoid of a Spark aggregate, None when it has none of its own.

    function: Spark's class name in lower case; types: Spark's names of the argument types; mode: ansi, legacy or try;
    buffers: how many buffer columns Spark's aggregate has.
    """
    match function:
        case "count":
            test = " OR ".join(f"{{{chr(ord('x') + i)}}} IS NULL" for i in range(len(types)))
            return (
                Monoid("count", (additive("n", "bigint", f"if({test}, 0L, {{w}})"),), ("{n}",))
                if len(types) < 3
                else None
            )
        case "sum":
            return total(types[0], mode, buffers)
        case "average":
            return average(types[0])
        case "min" | "max":
            return extreme(function, types[0])
        case "minby" | "maxby":
            return extreme_by(function, types[0], types[1])
        case "bitandagg" | "bitoragg":
            return bits(function, types[0])
        case "bitxoragg":
            return exclusive_or(types[0])
        case "stddevsamp" | "stddevpop" | "variancesamp" | "variancepop":
            return integer_moments() if types[0] in INTEGRAL[:3] else moments()
        case "covsample" | "covpopulation" | "corr":
            return co_moments(function == "corr")
        case _:
            return None


def total(type_: str, mode: str, buffers: int) -> Monoid | None:
    """sum: exact for integers (no overflow before the end), decimals and, order-independent, for doubles."""
    summed = summation(type_, mode)
    if summed is None:
        return None
    parts, value, unit, watched, disturbed = summed
    sums = (value, "{n} = 0") if buffers == 2 else (f"if({{n}} = 0, NULL, {value})",)
    return Monoid("sum", (*parts, COUNT_X), sums, watched, disturbed, unit, reach=EXACTLY)


def average(type_: str) -> Monoid | None:
    """avg: the sum and the count; Spark's own expression divides."""
    summed = summation(type_, "exact")
    if summed is None:
        return None
    parts, value, unit, watched, disturbed = summed
    return Monoid("avg", (*parts, COUNT_X), (value, "{n}"), watched, disturbed, unit, reach=EXACTLY)


Summation = tuple[tuple[Part, ...], str, bool, tuple[Part, ...], str | None]


def summation(type_: str, mode: str) -> Summation | None:
    """How values of a type are summed: parts, the sum as SQL, unit weights, watched parts, disturbed."""
    if type_ in INTEGRAL[:3]:
        return (additive("s", "bigint", "CAST({x} AS BIGINT) * {w}"),), "{s}", False, (), None
    if type_ == "bigint":
        # two halves: neither can overflow before 2^31 rows, so only the total decides whether Spark's sum overflows
        halves = (
            additive("hi", "bigint", "shiftright({x}, 32) * {w}"),
            additive("lo", "bigint", "({x} & 4294967295L) * {w}"),
        )
        whole = "(CAST({hi} AS DECIMAL(19,0)) * 4294967296BD + CAST({lo} AS DECIMAL(19,0)))"
        cast = {"ansi": f"CAST({whole} AS BIGINT)", "try": f"try_cast({whole} AS BIGINT)", "exact": whole}
        return halves, cast.get(mode, "(shiftleft({hi}, 32) + {lo})"), False, (), None
    if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", type_):
        return decimals(int(found[1]), int(found[2]), mode)
    if type_ in ("double", "float"):
        limbs = tuple(additive(f"e{i}", "bigint", f"{exact.limb(i)} * {{w}}") for i in range(exact.LIMBS))
        rest = Part(
            "rest",
            "double",
            f"coalesce(sum(if({{w}} > 0 AND {exact.ODD}, {{x}} * {{w}}, 0D)), 0D)",
            "{t[rest]} + {u[rest]}",
            "0",
        )
        gone = Part("gone", "bigint", f"coalesce(sum(if({{w}} < 0 AND {exact.ODD}, 1L, 0L)), 0L)", "", "0")
        return (*limbs, rest), f"({exact.VALUE} + {{rest}})", False, (gone,), "{u[gone]} > 0"
    return None


def decimals(precision: int, scale: int, mode: str) -> Summation | None:
    """Decimals: 37 digits, since Spark adds two of these without giving up scale; None where all are behind the point.

    A sum that outgrows them is an error whatever ANSI says: as NULL it would stay NULL when the rows have gone.
    """
    if scale > 37:
        return None
    wide, stored = f"DECIMAL(38,{scale})", f"DECIMAL(37,{scale})"
    unit = precision > 26  # x * w must be exact: precision + 11 digits within 38
    # a zero of the same type: beside the INT 0 Spark takes ten digits before the point, and gives up scale for them
    zero, grown = f"CAST(0 AS {stored})", f"CAST(raise_error('{OUTGROWN}') AS {stored})"
    came, left, summed = (
        f"if(count({value}) = 0, {zero}, coalesce(CAST(sum(CAST({value} AS {wide})) AS {stored}), {grown}))"
        for value in ("if({w} > 0, {x}, NULL)", "if({w} < 0, {x}, NULL)", "{x} * CAST({w} AS DECIMAL(10,0))")
    )
    if unit:  # Spark's -x has 34 digits
        summed = f"coalesce(CAST({came} - {left} AS {stored}), {grown})"
    merged = f"coalesce(CAST({{t[s]}} + {{u[s]}} AS {stored}), {grown})"
    cast = "try_cast" if mode == "try" else "CAST"
    result = f"{cast}({{s}} AS DECIMAL({min(38, precision + 10)},{scale}))"
    return (Part("s", stored.lower(), summed, merged, "0"),), result, unit, (), None


def extreme(function: str, type_: str) -> Monoid:
    """min and max: idempotent; a deletion matters only when it reaches the present extreme."""
    pick, reach = ("least", "<=") if function == "min" else ("greatest", ">=")
    m = Part("m", type_, f"{function}(if({{w}} > 0, {{x}}, NULL))", f"{pick}({{t[m]}}, {{u[m]}})")
    gone = Part("gone", type_, f"{function}(if({{w}} < 0, {{x}}, NULL))", "")
    disturbed = f"coalesce({{u[gone]}} {reach} {{t[m]}}, false) AND NOT coalesce({{u[m]}} {reach} {{u[gone]}}, false)"
    return Monoid(function, (m,), ("{m}",), (gone,), disturbed, reach=f"of the present {function} recompute its group")


def extreme_by(function: str, value: str, order: str) -> Monoid | None:
    """max_by and min_by: the extreme of (order, value), so equal orders are settled by the value."""
    if orderless(value):
        return None
    pair = "named_struct('o', {y}, 'v', {x})"
    inner = extreme(function.removesuffix("by"), f"STRUCT<o: {order}, v: {value}>")
    parts, watched = (tuple(lifted(part, pair) for part in parts) for parts in (inner.parts, inner.watched))
    rule = f"among equal orders the {'smallest' if function == 'minby' else 'largest'} value is taken"
    name = f"{inner.name}_by"
    return Monoid(name, parts, ("{m}.v", "{m}.o"), watched, inner.disturbed, ambiguous=rule, reach=inner.reach)


def lifted(part: Part, pair: str) -> Part:
    """The part over the pair (order, value) of rows that have an order."""
    lift = part.lift.replace("> 0,", "> 0 AND {y} IS NOT NULL,").replace("< 0,", "< 0 AND {y} IS NOT NULL,")
    return Part(part.name, part.type, lift.replace("{x}", pair), part.merge)


def bits(function: str, type_: str) -> Monoid:
    """bit_and and bit_or: idempotent, without inverse."""
    name, operator = ("bit_and", "&") if function == "bitandagg" else ("bit_or", "|")
    merge = f"coalesce({{t[m]}} {operator} {{u[m]}}, {{t[m]}}, {{u[m]}})"
    part = Part("m", type_, f"{name}(if({{w}} > 0, {{x}}, NULL))", merge)
    return Monoid(name, (part,), ("{m}",), (GONE_X,), "{u[gone]} > 0")


GONE_X = Part("gone", "bigint", "coalesce(sum(if({w} < 0 AND {x} IS NOT NULL, 1L, 0L)), 0L)", "", "0")


def exclusive_or(type_: str) -> Monoid:
    """bit_xor: its own inverse, so only odd weights count."""
    zero = f"CAST(0 AS {type_})"
    part = Part("m", type_, f"coalesce(bit_xor(if({{w}} % 2 <> 0, {{x}}, NULL)), {zero})", "{t[m]} ^ {u[m]}", "0")
    return Monoid("bit_xor", (part, COUNT_X), ("if({n} = 0, NULL, {m})",))


def integer_moments() -> Monoid:
    """Variance of integers from exact sums of x and x², the latter in two halves."""
    square = "(CAST({x} AS BIGINT) * CAST({x} AS BIGINT))"
    parts = (
        additive("s", "bigint", "CAST({x} AS BIGINT) * {w}"),
        additive("qh", "bigint", f"shiftright({square}, 31) * {{w}}"),
        additive("ql", "bigint", f"({square} & 2147483647L) * {{w}}"),
        COUNT_X,
    )
    wide = "CAST({} AS DECIMAL(38,0))"
    squares = "(CAST(CAST({qh} AS DECIMAL(19,0)) * 2147483648BD + CAST({ql} AS DECIMAL(19,0)) AS DECIMAL(38,0)))"
    n, s = wide.format("{n}"), wide.format("{s}")
    scaled = f"CAST(try_subtract(try_multiply({n}, {squares}), try_multiply({s}, {s})) AS DOUBLE) / {{n}}"
    rounded = f"CAST({squares} AS DOUBLE) - CAST({{s}} AS DOUBLE) * CAST({{s}} AS DOUBLE) / {{n}}"
    m2 = f"if({{n}} = 0, 0D, greatest(0D, coalesce({scaled}, {rounded})))"
    mean = "if({n} = 0, 0D, CAST({s} AS DOUBLE) / {n})"
    return Monoid("moments", parts, ("CAST({n} AS DOUBLE)", mean, m2))


MEAN = "if({{t[n]}} + {{u[n]}} = 0, 0D, {{t[{m}]}} + ({{u[{m}]}} - {{t[{m}]}}) * {{u[n]}} / ({{t[n]}} + {{u[n]}}))"
SPREAD = (
    "{{t[{c}]}} + {{u[{c}]}} + if({{t[n]}} + {{u[n]}} = 0, 0D, "
    "({{u[{a}]}} - {{t[{a}]}}) * ({{u[{b}]}} - {{t[{b}]}}) * {{t[n]}} * {{u[n]}} / ({{t[n]}} + {{u[n]}}))"
)


def moments() -> Monoid:
    """Variance of doubles: count, mean, second central moment, merged as Spark merges them (Chan et al.)."""
    x = "if({w} > 0, CAST({x} AS DOUBLE), NULL)"
    parts = (
        Part("n", "double", f"CAST(count({x}) AS DOUBLE)", "{t[n]} + {u[n]}", "0"),
        Part("mean", "double", f"coalesce(avg({x}), 0D)", MEAN.format(m="mean"), "0"),
        Part(
            "m2", "double", f"coalesce(var_pop({x}) * count({x}), 0D)", SPREAD.format(c="m2", a="mean", b="mean"), "0"
        ),
    )
    return Monoid("moments", parts, ("{n}", "{mean}", "{m2}"), (GONE_X,), "{u[gone]} > 0", unit=True)


def co_moments(with_spreads: bool) -> Monoid:
    """Covariance and, with the spreads of both sides, correlation; merged as Spark merges them."""
    here = "{w} > 0 AND {x} IS NOT NULL AND {y} IS NOT NULL"
    x, y = (f"if({here}, CAST({{{name}}} AS DOUBLE), NULL)" for name in "xy")
    gone = Part(
        "gone", "bigint", "coalesce(sum(if({w} < 0 AND {x} IS NOT NULL AND {y} IS NOT NULL, 1L, 0L)), 0L)", "", "0"
    )
    parts = [
        Part("n", "double", f"CAST(count({x}) AS DOUBLE)", "{t[n]} + {u[n]}", "0"),
        Part("mx", "double", f"coalesce(avg({x}), 0D)", MEAN.format(m="mx"), "0"),
        Part("my", "double", f"coalesce(avg({y}), 0D)", MEAN.format(m="my"), "0"),
        Part(
            "ck",
            "double",
            f"coalesce(covar_pop({x}, {y}) * count({x}), 0D)",
            SPREAD.format(c="ck", a="mx", b="my"),
            "0",
        ),
    ]
    if with_spreads:
        for name, mean, value in (("xk", "mx", x), ("yk", "my", y)):
            spread = SPREAD.format(c=name, a=mean, b=mean)
            parts.append(Part(name, "double", f"coalesce(var_pop({value}) * count({value}), 0D)", spread, "0"))
    buffers = tuple(f"{{{part.name}}}" for part in parts)
    return Monoid("comoments", tuple(parts), buffers, (gone,), "{u[gone]} > 0", unit=True)
