"""Define counts, sums and averages: exact for integers and decimals, independent of row order for doubles."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deltafold.algebra.monoids import exact
from deltafold.algebra.monoids.kinds import Component, Group, Mergeable, Monoid
from deltafold.algebra.monoids.wide_decimals import COUNT, WideSum, raise_overflow

SMALL_INTEGERS = ("tinyint", "smallint", "int")


def additive(name: str, type_: str, value: str) -> Component:
    """Return a component that sums `value` over rows, each counted with its weight."""
    return Component(name, type_, f"coalesce(sum({value}), 0)", f"{{t[{name}]}} + {{u[{name}]}}", "0")


COUNT_X = additive("n", "bigint", "if({x} IS NULL, 0L, {w})")
DELETED_X = Component("gone", "bigint", "coalesce(sum(if({w} < 0 AND {x} IS NOT NULL, 1L, 0L)), 0L)", "", "0")


@dataclass(frozen=True)
class Sum:
    """How values of one type are summed.

    components: the stored columns; value: the sum as SQL over them and the number of values; unit_weights: see Group;
    unsummed: the number of deleted values that cannot be subtracted, None if all can; number: the column with the
    number of values; count: that number as SQL.
    """

    components: tuple[Component, ...]
    value: str
    unit_weights: bool = False
    unsummed: Component | None = None
    number: Component = COUNT_X
    count: str = "{n}"

    def accumulate(self, name: str, buffers: tuple[str, ...]) -> Mergeable:
        """Return the accumulator of an aggregate over this sum and the number of values."""
        components = (*self.components, self.number)
        if self.unsummed is None:
            return Group(name, components, buffers, self.unit_weights)
        deletions = "deletions subtract, but that of NaN, an infinity or an out-of-range value recomputes the group"
        condition = f"{{u[{self.unsummed.name}]}} > 0"
        return Monoid(name, components, buffers, (self.unsummed,), condition, self.unit_weights, deletions)


def count_monoid(types: tuple[str, ...]) -> Group | None:
    """Return count(*) or count of one or two columns."""
    if len(types) > 2:
        return None
    is_null = " OR ".join(f"{{{chr(ord('x') + i)}}} IS NULL" for i in range(len(types)))
    return Group("count", (additive("n", "bigint", f"if({is_null}, 0L, {{w}})"),), ("{n}",))


def total(type_: str, mode: str, buffers: int) -> Mergeable | None:
    """Return sum: integers overflow at the end only, decimals and doubles are exact."""
    found = sum_monoid(type_, mode)
    if found is None:
        return None
    is_empty = f"{found.count} = 0"
    return found.accumulate(
        "sum", (found.value, is_empty) if buffers == 2 else (f"if({is_empty}, NULL, {found.value})",)
    )


def average(type_: str) -> Mergeable | None:
    """Return avg: the sum and the count, which Spark's own expression divides."""
    found = sum_monoid(type_, "exact")
    return None if found is None else found.accumulate("avg", (found.value, found.count))


def sum_monoid(type_: str, mode: str) -> Sum | None:
    """Return the sum of values of a type; mode: Spark's overflow mode, or exact for no cast at the end."""
    if type_ in SMALL_INTEGERS:
        return Sum((additive("s", "bigint", "CAST({x} AS BIGINT) * {w}"),), "{s}")
    if type_ == "bigint":
        return sum_of_longs(mode)
    if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", type_):
        return sum_of_decimals(int(found[1]), int(found[2]), mode)
    return sum_of_doubles() if type_ in ("double", "float") else None


def sum_of_longs(mode: str) -> Sum:
    """Sum in two halves: neither can overflow before 2^31 rows, so only the total decides whether Spark's sum does."""
    halves = (
        additive("hi", "bigint", "shiftright({x}, 32) * {w}"),
        additive("lo", "bigint", "({x} & 4294967295L) * {w}"),
    )
    whole = "(CAST({hi} AS DECIMAL(19,0)) * 4294967296BD + CAST({lo} AS DECIMAL(19,0)))"
    by_mode = {"ansi": f"CAST({whole} AS BIGINT)", "try": f"try_cast({whole} AS BIGINT)", "exact": whole}
    return Sum(halves, by_mode.get(mode, "(shiftleft({hi}, 32) + {lo})"))


def sum_of_doubles() -> Sum:
    """Sum windows of bits exactly, and the values that do not fit into them apart."""
    windows = tuple(additive(f"e{i}", "bigint", f"{exact.window_sql(i)} * {{w}}") for i in range(exact.WINDOWS))
    rest = Component(
        "rest",
        "double",
        f"coalesce(sum(if({{w}} > 0 AND {exact.OUT_OF_RANGE}, {{x}} * {{w}}, 0D)), 0D)",
        "{t[rest]} + {u[rest]}",
        "0",
    )
    unsummed = Component(
        "gone", "bigint", f"coalesce(sum(if({{w}} < 0 AND {exact.OUT_OF_RANGE}, 1L, 0L)), 0L)", "", "0"
    )
    return Sum((*windows, rest), f"({exact.VALUE} + {{rest}})", unsummed=unsummed)


def sum_of_decimals(precision: int, scale: int, mode: str) -> Sum | None:
    """Sum with 37 digits, since Spark adds two of these without losing scale; None if all digits are fractional.

    Sums that may outgrow them have a carry, with which no deletion is lost: as NULL such a sum would stay NULL.
    """
    if scale > 37:
        return None
    if precision > 26:  # x * w must be exact: precision + 11 digits within 38
        return sum_of_wide_decimals(min(38, precision + 10), WideSum(scale))
    wide, stored = f"DECIMAL(38,{scale})", f"DECIMAL(37,{scale})"
    # a zero of the same type: beside the INT 0 Spark reserves ten digits before the point, and loses scale for them
    zero, overflow, value = f"CAST(0 AS {stored})", raise_overflow(stored), "{x} * CAST({w} AS DECIMAL(10,0))"
    summed = f"if(count({value}) = 0, {zero}, coalesce(CAST(sum(CAST({value} AS {wide})) AS {stored}), {overflow}))"
    merged = f"coalesce(CAST({{t[s]}} + {{u[s]}} AS {stored}), {overflow})"
    cast = "try_cast" if mode == "try" else "CAST"
    result = f"{cast}({{s}} AS DECIMAL({precision + 10},{scale}))"
    return Sum((Component("s", stored.lower(), summed, merged, "0"),), result)


def sum_of_wide_decimals(digits: int, exact: WideSum) -> Sum:
    """Sum with a carry beside the number of values; digits: those of Spark's sum, NULL beyond them."""
    kept, number = (
        Component(name, type_.lower(), lift, merge, "0")
        for name, type_, lift, merge in zip("sn", (exact.stored, "bigint"), exact.lifts, exact.merges, strict=True)
    )
    return Sum((kept,), exact.value(digits), True, number=number, count=COUNT)
