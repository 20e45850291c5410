"""Define variance, covariance and correlation: exact sums for integers, merged central moments for doubles."""

from __future__ import annotations

from deltafold.algebra.monoids.kinds import Component, Group, Monoid
from deltafold.algebra.monoids.sums import COUNT_X, DELETED_X, additive

MEAN = "if({{t[n]}} + {{u[n]}} = 0, 0D, {{t[{m}]}} + ({{u[{m}]}} - {{t[{m}]}}) * {{u[n]}} / ({{t[n]}} + {{u[n]}}))"
SPREAD = (
    "{{t[{c}]}} + {{u[{c}]}} + if({{t[n]}} + {{u[n]}} = 0, 0D, "
    "({{u[{a}]}} - {{t[{a}]}}) * ({{u[{b}]}} - {{t[{b}]}}) * {{t[n]}} * {{u[n]}} / ({{t[n]}} + {{u[n]}}))"
)


def integer_moments() -> Group:
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
    n, s = wide.format("{n}"), wide.format("{s}")
    scaled = f"CAST(try_subtract(try_multiply({n}, {squares}), try_multiply({s}, {s})) AS DOUBLE) / {{n}}"
    rounded = f"CAST({squares} AS DOUBLE) - CAST({{s}} AS DOUBLE) * CAST({{s}} AS DOUBLE) / {{n}}"
    m2 = f"if({{n}} = 0, 0D, greatest(0D, coalesce({scaled}, {rounded})))"
    mean = "if({n} = 0, 0D, CAST({s} AS DOUBLE) / {n})"
    return Group("moments", components, ("CAST({n} AS DOUBLE)", mean, m2))


def moments() -> Monoid:
    """Return the variance of doubles: count, mean and second central moment, merged as by Spark (Chan et al.)."""
    x = "if({w} > 0, CAST({x} AS DOUBLE), NULL)"
    spread = SPREAD.format(c="m2", a="mean", b="mean")
    components = (
        Component("n", "double", f"CAST(count({x}) AS DOUBLE)", "{t[n]} + {u[n]}", "0"),
        Component("mean", "double", f"coalesce(avg({x}), 0D)", MEAN.format(m="mean"), "0"),
        Component("m2", "double", f"coalesce(var_pop({x}) * count({x}), 0D)", spread, "0"),
    )
    return Monoid("moments", components, ("{n}", "{mean}", "{m2}"), (DELETED_X,), "{u[gone]} > 0", unit_weights=True)


def co_moments(with_spreads: bool) -> Monoid:
    """Return covariance and, with the spreads of both sides, correlation; merged as by Spark."""
    here = "{w} > 0 AND {x} IS NOT NULL AND {y} IS NOT NULL"
    x, y = (f"if({here}, CAST({{{name}}} AS DOUBLE), NULL)" for name in "xy")
    both_deleted = "coalesce(sum(if({w} < 0 AND {x} IS NOT NULL AND {y} IS NOT NULL, 1L, 0L)), 0L)"
    product = SPREAD.format(c="ck", a="mx", b="my")
    components = [
        Component("n", "double", f"CAST(count({x}) AS DOUBLE)", "{t[n]} + {u[n]}", "0"),
        Component("mx", "double", f"coalesce(avg({x}), 0D)", MEAN.format(m="mx"), "0"),
        Component("my", "double", f"coalesce(avg({y}), 0D)", MEAN.format(m="my"), "0"),
        Component("ck", "double", f"coalesce(covar_pop({x}, {y}) * count({x}), 0D)", product, "0"),
    ]
    if with_spreads:
        for name, mean, value in (("xk", "mx", x), ("yk", "my", y)):
            spread = SPREAD.format(c=name, a=mean, b=mean)
            components.append(
                Component(name, "double", f"coalesce(var_pop({value}) * count({value}), 0D)", spread, "0")
            )
    buffers = tuple(f"{{{component.name}}}" for component in components)
    watched = (Component("gone", "bigint", both_deleted, "", "0"),)
    return Monoid("comoments", tuple(components), buffers, watched, "{u[gone]} > 0", unit_weights=True)
