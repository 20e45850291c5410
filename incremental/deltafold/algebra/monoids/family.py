"""Infer the accumulator of each of Spark's aggregate functions from its name and the types of its arguments.

Counts, sums and averages are in sums.py; here are minima, maxima and bitwise aggregates, most of which have no inverse,
and variance, covariance and correlation: exact sums for integers, merged central moments for doubles.

A package adds an aggregate by an entry point of the group `deltafold.aggregates`: Spark's class name of it in lower
case, and an `Infer`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deltafold.algebra.added import cause_of, load_added
from deltafold.algebra.errors import DeltafoldError, UsageError
from deltafold.algebra.monoids.kinds import Accumulator, Component, Group, Mergeable, Monoid, store_answer
from deltafold.algebra.monoids.sums import (
    COUNT_X,
    DELETED_X,
    SMALL_INTEGERS,
    additive,
    average_monoid,
    count_deleted,
    count_monoid,
    sum_monoid,
)
from deltafold.algebra.plan import Call
from deltafold.algebra.sqltext import is_unordered

GROUP = "deltafold.aggregates"
Infer = Callable[[tuple[str, ...], str, int], Mergeable | None]
"""Returns the monoid of an aggregate by the types of its arguments, the mode and the number of Spark's buffers."""


def infer_accumulator(call: Call) -> Accumulator:
    """Return the monoid of an aggregate call; if it has none, its groups are recomputed and its answer is stored."""
    return infer_call_monoid(call) or store_answer(call.column.type)


def infer_call_monoid(call: Call) -> Mergeable | None:
    """Return the monoid of an aggregate call, None if it is DISTINCT or does not merge."""
    return None if call.distinct else infer_function_monoid(call)


def infer_function_monoid(call: Call) -> Mergeable | None:
    """Return the monoid of the function that is called, whether or not over distinct values."""
    if call.declared is not None:
        return call.declared.accumulator()
    types = tuple(column.type for column in call.arguments)
    return infer_monoid(call.function, types, call.mode, len(call.buffers))


def infer_monoid(function: str, types: tuple[str, ...], mode: str, buffers: int) -> Mergeable | None:
    """Return the monoid of a Spark aggregate, None if it does not merge; arguments as of `infer_own_monoid`.

    Raises UsageError where a package adds the aggregate and gives no monoid for Spark's buffers.
    """
    return infer_own_monoid(function, types, mode, buffers) or _infer_added_monoid(function, types, mode, buffers)


def infer_added_call(call: Call) -> Mergeable | None:
    """Return the monoid of a call if another package adds it, which the next release of that may change."""
    types = tuple(column.type for column in call.arguments)
    if call.declared is not None or infer_own_monoid(call.function, types, call.mode, len(call.buffers)) is not None:
        return None
    return _infer_added_monoid(call.function, types, call.mode, len(call.buffers))


def _infer_added_monoid(function: str, types: tuple[str, ...], mode: str, buffers: int) -> Mergeable | None:
    infer: Infer | None = load_added(GROUP).get(function)
    if infer is None:
        return None
    entry = f"entry point {function} of {GROUP}"
    advice = "Correct or remove its package."
    try:
        added = infer(types, mode, buffers)
    except DeltafoldError:
        raise
    except Exception as error:
        raise UsageError(
            f"{entry}: it fails for arguments of {', '.join(types)} ({cause_of(error)}). {advice}"
        ) from error
    if added is None:
        return None
    if not isinstance(added, Group | Monoid):  # pyright: ignore[reportUnnecessaryIsInstance]  of another package
        raise UsageError(f"{entry}: it returns a {type(added).__name__}, not a Group, a Monoid or None. {advice}")
    if len(added.buffers) != buffers:
        of_spark = f"Spark's aggregate has {buffers}"
        raise UsageError(f"{entry}: its monoid has {len(added.buffers)} buffers, and {of_spark}. {advice}")
    return added


def infer_own_monoid(function: str, types: tuple[str, ...], mode: str, buffers: int) -> Mergeable | None:
    """Return the monoid of an aggregate that no other package adds, None if it does not merge.

    function: Spark's class name in lower case; types: Spark's names of the argument types; mode: ansi, legacy or try;
    buffers: the number of buffer columns of Spark's aggregate.
    """
    match function:
        case "count":
            return count_monoid(types)
        case "sum":
            return sum_monoid(types[0], mode, buffers)
        case "average":
            return average_monoid(types[0])
        case "min" | "max":
            return extreme(function, types[0])
        case "minby" | "maxby":
            return _extreme_by(function, types[0], types[1])
        case "bitandagg" | "bitoragg":
            return _bitwise(function, types[0])
        case "bitxoragg":
            return _exclusive_or(types[0])
        case "stddevsamp" | "stddevpop" | "variancesamp" | "variancepop":
            return _integer_moments() if types[0] in SMALL_INTEGERS else _moments()
        case "covsample" | "covpopulation" | "corr":
            return _co_moments(with_spreads=function == "corr")
        case _:
            return None


def extreme(function: str, type_: str) -> Monoid:
    """Return min or max; a deletion matters only if it reaches the current extreme."""
    pick, reaches = ("least", "<=") if function == "min" else ("greatest", ">=")
    kept = Component(
        name="m", type=type_, lift=f"{function}(if({{w}} > 0, {{x}}, NULL))", merge=f"{pick}({{t[m]}}, {{u[m]}})"
    )
    deleted = Component(name="gone", type=type_, lift=f"{function}(if({{w}} < 0, {{x}}, NULL))")
    replaced = f"coalesce({{u[m]}} {reaches} {{u[gone]}}, false)"  # by an inserted value that is as good
    return Monoid(
        name=function,
        components=(kept,),
        buffers=("{m}",),
        watched=(deleted,),
        needs_recompute_sql=f"coalesce({{u[gone]}} {reaches} {{t[m]}}, false) AND NOT {replaced}",
        deletions=f"deleting the current {function} recomputes the group",
        may_recompute_sql=f"{{u[gone]}} IS NOT NULL AND NOT {replaced}",
    )


def _extreme_by(function: str, value: str, order: str) -> Monoid | None:
    """Return min_by or max_by as the extreme of (order, value): the value breaks ties between equal orders."""
    if is_unordered(value):
        return None
    inner = extreme(function.removesuffix("by"), f"STRUCT<o: {order}, v: {value}>")
    return replace(
        inner,
        name=f"{inner.name}_by",
        components=tuple(map(_over_pairs, inner.components)),
        buffers=("{m}.v", "{m}.o"),
        watched=tuple(map(_over_pairs, inner.watched)),
        tie_rule=f"the {'smallest' if function == 'minby' else 'largest'} value is taken among equal orders",
    )


def _over_pairs(component: Component) -> Component:
    """Return the component over pairs (order, value) of the rows that have an order."""
    lift = component.lift.replace("> 0,", "> 0 AND {y} IS NOT NULL,").replace("< 0,", "< 0 AND {y} IS NOT NULL,")
    return replace(component, lift=lift.replace("{x}", "named_struct('o', {y}, 'v', {x})"))


def _bitwise(function: str, type_: str) -> Monoid:
    """Return bit_and or bit_or: idempotent, without inverse."""
    name, operator = ("bit_and", "&") if function == "bitandagg" else ("bit_or", "|")
    merge = f"coalesce({{t[m]}} {operator} {{u[m]}}, {{t[m]}}, {{u[m]}})"
    kept = Component(name="m", type=type_, lift=f"{name}(if({{w}} > 0, {{x}}, NULL))", merge=merge)
    return Monoid(name=name, components=(kept,), buffers=("{m}",), watched=(DELETED_X,))


def _exclusive_or(type_: str) -> Group:
    """Return bit_xor: its own inverse, so only odd weights count."""
    zero = f"CAST(0 AS {type_})"
    lift = f"coalesce(bit_xor(if({{w}} % 2 <> 0, {{x}}, NULL)), {zero})"
    kept = Component(name="m", type=type_, lift=lift, merge="{t[m]} ^ {u[m]}", zero="0")
    return Group("bit_xor", (kept, COUNT_X), ("if({n} = 0, NULL, {m})",))


MEAN = "if({{t[n]}} + {{u[n]}} = 0, 0D, {{t[{m}]}} + ({{u[{m}]}} - {{t[{m}]}}) * {{u[n]}} / ({{t[n]}} + {{u[n]}}))"
SPREAD = (
    "{{t[{c}]}} + {{u[{c}]}} + if({{t[n]}} + {{u[n]}} = 0, 0D, "
    "({{u[{a}]}} - {{t[{a}]}}) * ({{u[{b}]}} - {{t[{b}]}}) * {{t[n]}} * {{u[n]}} / ({{t[n]}} + {{u[n]}}))"
)


def _integer_moments() -> Group:
    """Return the variance of integers from exact sums of x and x², the latter in two halves."""
    square = "(CAST({x} AS BIGINT) * CAST({x} AS BIGINT))"
    components = (
        additive("s", "bigint", "CAST({x} AS BIGINT) * {w}"),
        additive("qh", "bigint", f"shiftright({square}, 31) * {{w}}"),
        additive("ql", "bigint", f"({square} & 2147483647L) * {{w}}"),
        COUNT_X,
    )
    wide = "CAST({} AS DECIMAL(38,0))"
    squares = "(CAST(CAST({qh} AS DECIMAL(19,0)) * 2147483648BD + CAST({ql} AS DECIMAL(19,0)) AS DECIMAL(38,0)))"
    n = wide.format("{n}")
    s = wide.format("{s}")
    scaled = f"CAST(try_subtract(try_multiply({n}, {squares}), try_multiply({s}, {s})) AS DOUBLE) / {{n}}"
    rounded = f"CAST({squares} AS DOUBLE) - CAST({{s}} AS DOUBLE) * CAST({{s}} AS DOUBLE) / {{n}}"
    m2 = f"if({{n}} = 0, 0D, greatest(0D, coalesce({scaled}, {rounded})))"
    mean = "if({n} = 0, 0D, CAST({s} AS DOUBLE) / {n})"
    return Group("moments", components, ("CAST({n} AS DOUBLE)", mean, m2))


def _moments() -> Monoid:
    """Return the variance of doubles: count, mean and second central moment, merged as by Spark (Chan et al.)."""
    x = "if({w} > 0, CAST({x} AS DOUBLE), NULL)"
    return _of_moments("moments", (_number(x), _mean("mean", x), _spread("m2", "mean", x)), DELETED_X)


def _co_moments(*, with_spreads: bool) -> Monoid:
    """Return covariance and, with the spreads of both sides, correlation; merged as by Spark."""
    both = "{x} IS NOT NULL AND {y} IS NOT NULL"
    x, y = (f"if({{w}} > 0 AND {both}, CAST({{{name}}} AS DOUBLE), NULL)" for name in "xy")
    covariance = _central("ck", f"covar_pop({x}, {y}) * count({x})", SPREAD.format(c="ck", a="mx", b="my"))
    spreads = (_spread("xk", "mx", x), _spread("yk", "my", y)) if with_spreads else ()
    components = (_number(x), _mean("mx", x), _mean("my", y), covariance, *spreads)
    return _of_moments("comoments", components, count_deleted(both))


def _of_moments(name: str, components: tuple[Component, ...], deleted: Component) -> Monoid:
    buffers = tuple(f"{{{component.name}}}" for component in components)
    return Monoid(name=name, components=components, buffers=buffers, watched=(deleted,), unit_weights=True)


def _number(x: str) -> Component:
    return Component(name="n", type="double", lift=f"CAST(count({x}) AS DOUBLE)", merge="{t[n]} + {u[n]}", zero="0")


def _mean(name: str, x: str) -> Component:
    return _central(name, f"avg({x})", MEAN.format(m=name))


def _spread(name: str, mean: str, x: str) -> Component:
    return _central(name, f"var_pop({x}) * count({x})", SPREAD.format(c=name, a=mean, b=mean))


def _central(name: str, lift: str, merge: str) -> Component:
    """Return a component of a moment, 0 for no rows."""
    return Component(name=name, type="double", lift=f"coalesce({lift}, 0D)", merge=merge, zero="0")
