"""Random bags of values for the monoid laws: for each type its extremes, NULL, and other values that cause errors."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

INF, NAN = float("inf"), float("nan")
UTC = datetime.UTC
BAGS = ("A", "B", "C")
COMMON = "g int, n bigint, c double, d double"  # group, a unique order, two ordinary numbers
ANY = "count(*) count_all, count(x) count_x, min(x) lo, max(x) hi, max_by(x, n) last, min_by(x, n) first"
MOMENTS = "stddev_samp(x) sds, stddev_pop(x) sdp, var_samp(x) vs, var_pop(x) vp"
PAIRS = "covar_samp(x, c) cs, covar_pop(c, x) cp, corr(c, d) r, count(x, c) both"
SUMS = "sum(x) s, avg(x) mean, try_sum(x) ts"
BITS = "bit_and(x) ba, bit_or(x) bo, bit_xor(x) bx"
BOOLEANS = "bool_and(x) al, bool_or(x) an, every(x) ev, some(x) so, count_if(x) ci"
FILTERED = "sum(x) filter (where c > 0) sf, avg(x) filter (where c > 0) af, count(*) filter (where c > 0) nf"


@dataclass(frozen=True)
class Kind:
    """A type under test: its name, its values, and the aggregates of it as SQL."""

    type: str
    draw: Callable[[random.Random], Any]
    aggregates: tuple[str, ...]

    @property
    def schema(self) -> str:
        return f"{COMMON}, x {self.type}"

    @property
    def query(self) -> str:
        return f"select g, {', '.join(self.aggregates)} from t group by g"


def integers(bits: int) -> Callable[[random.Random], Any]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return lambda r: r.choice([None, low, low + 1, high, high, 0, -1, r.randint(low, high), r.randint(-9, 9)])


def decimals(digits: int, scale: int) -> Callable[[random.Random], Any]:
    def draw(r: random.Random) -> Decimal | None:
        unscaled = r.choice([0, 1, -1, 10**digits - 1, 1 - 10**digits, r.randrange(-(10**digits) + 1, 10**digits)])
        exactly = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))  # scaleb would round
        return r.choice([None] + 4 * [exactly])

    return draw


def ordinary(r: random.Random) -> float | None:
    """Doubles of every size that is summed exactly, with cancellation."""
    return r.choice([None, 0.0, -0.0, 1e20, -1e20, r.uniform(-1, 1), r.choice([-1, 1]) * 10 ** r.uniform(-12, 28)])


def special(r: random.Random) -> float | None:
    """Doubles that do not fit into the exact windows, beside some that do."""
    return r.choice([None, NAN, INF, -INF, -0.0, 0.0, 1e300, -1e300, 5e-324, 1.5, -1.5, 1.5])


def binary32(r: random.Random) -> float | None:
    return r.choice([None, NAN, INF, -0.0, 0.5, r.choice([-1, 1]) * r.randrange(2**24) * 2.0 ** r.randrange(-60, 60)])


def moment(r: random.Random) -> float | None:
    """Doubles whose moments do not overflow."""
    return r.choice([None, r.uniform(-1e6, 1e6), r.uniform(-1, 1), 0.0, r.choice([1.5, NAN, INF, 2.5])])


def day(r: random.Random) -> datetime.date | None:
    first, last = datetime.date(1, 1, 1), datetime.date(9999, 12, 31)
    return r.choice([None, first, last, datetime.date(1970, 1, 1), first + datetime.timedelta(r.randrange(3_000_000))])


def moment_in_time(r: random.Random) -> datetime.datetime | None:
    start = datetime.datetime(1970, 1, 1, tzinfo=UTC)
    return r.choice(
        [None, start, start - datetime.timedelta(microseconds=1), start + datetime.timedelta(r.random() * 1e5)]
    )


def local_time(r: random.Random) -> datetime.datetime | None:
    found = moment_in_time(r)
    return None if found is None else found.replace(tzinfo=None)


def text(r: random.Random) -> str | None:
    return r.choice([None, "", " ", "a", "A", "ä", "日本", "a`b", "\x00", "".join(r.choices("abc'\"\\", k=4))])


def octets(r: random.Random) -> bytearray | None:
    return r.choice([None, bytearray(), bytearray(b"\x00"), bytearray(b"\xff"), bytearray(r.randbytes(3))])


def truth(r: random.Random) -> bool | None:
    return r.choice([None, True, False])


def struct(r: random.Random) -> Any:
    return r.choice([None, (None, None), (1, None), (None, "a"), (r.randint(0, 2), r.choice("ab"))])


KINDS = {
    **{
        name: Kind(name, integers(bits), (ANY, BITS, PAIRS, "avg(x) mean, count_if(x > 0) ci", MOMENTS, sums))
        for name, bits, sums in (
            ("tinyint", 8, f"sum(x) s, {FILTERED}"),
            ("smallint", 16, f"sum(x) s, {FILTERED}"),
            ("int", 32, f"sum(x) s, {FILTERED}"),
            ("bigint", 64, "try_sum(x) ts, sum(x >> 8) s"),
        )
    },
    "decimal(12,2)": Kind("decimal(12,2)", decimals(12, 2), (ANY, FILTERED, SUMS, MOMENTS)),
    "decimal(26,6)": Kind("decimal(26,6)", decimals(26, 6), (ANY, FILTERED, "sum(x) s, avg(x) mean, try_avg(x) tm")),
    "decimal(38,18)": Kind("decimal(38,18)", decimals(32, 18), (ANY, FILTERED, SUMS)),
    "decimal(38,30)": Kind("decimal(38,30)", decimals(33, 30), (ANY, FILTERED, SUMS)),
    "decimal(38,0)": Kind("decimal(38,0)", decimals(38, 0), (ANY, "sum(x % 100000000000) s, avg(x % 10000000) mean")),
    "double": Kind("double", ordinary, (ANY, FILTERED, SUMS)),
    "double, special": Kind("double", special, (ANY, FILTERED, "sum(x) s, avg(x) mean")),
    "double, moments": Kind("double", moment, (MOMENTS, PAIRS)),
    "float": Kind("float", binary32, (ANY, FILTERED, "sum(x) s, avg(x) mean")),
    "date": Kind("date", day, (ANY, "max_by(cast(x as string), x) by_x")),
    "timestamp": Kind("timestamp", moment_in_time, (ANY, "min_by(cast(x as string), x) by_x")),
    "timestamp_ntz": Kind("timestamp_ntz", local_time, (ANY,)),
    "string": Kind("string", text, (ANY, "max_by(length(x), x) by_x")),
    "binary": Kind("binary", octets, (ANY,)),
    "boolean": Kind("boolean", truth, (ANY, BOOLEANS)),
    "array<int>": Kind("array<int>", lambda r: r.choice([None, [], [None], [1, 2], [r.randint(0, 3)]]), (ANY,)),
    "struct": Kind("struct<A: int, b: string>", struct, (ANY,)),
}  # fmt: skip


def bags(kind: Kind, cases: int, seed: int) -> dict[tuple[int, str], list[tuple[Any, ...]]]:
    """Up to six rows for each case and bag, as (n, c, d, x); some bags are empty."""
    random_, count = random.Random(f"{kind.type} {seed}"), 0
    found: dict[tuple[int, str], list[tuple[Any, ...]]] = {}
    for case in range(cases):
        for bag in BAGS:
            rows: list[tuple[Any, ...]] = []
            for _ in range(random_.randrange(7)):
                count += 1
                ordinary_ = [random_.choice([None, random_.gauss(0, 100), random_.gauss(0, 100)]) for _ in "cd"]
                rows.append((count, *ordinary_, kind.draw(random_)))
            found[case, bag] = rows
    return found
