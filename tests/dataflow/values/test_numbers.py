"""Overflow, precision and rounding: as Spark has them, and without drift where Spark itself drifts."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from deltafold.api import DeltafoldError
from tests.night import night
from tests.sandbox import MemorySandbox, checked, row, rows

BIGGEST = 2**63 - 1


def test_integer_overflow_raises_as_in_batch_and_can_be_mended(sandbox: MemorySandbox) -> None:
    """Under ANSI sum overflows aloud; once the row is gone, the view goes on."""
    sandbox.source("t", "k int, v bigint", [(1, BIGGEST), (2, 4)])
    strict = sandbox.view("select k, sum(v) s from t group by k", "strict")
    lenient = sandbox.view("select k, try_sum(v) s, avg(v) a from t group by k", "lenient")
    checked(strict)
    checked(lenient)
    sandbox.sql("insert into {t} values (1, 1)")
    with pytest.raises(DeltafoldError, match=r"(?i)overflow|out of range"):
        strict.refresh()
    assert rows(strict) == [(1, BIGGEST), (2, 4)]
    checked(lenient)
    assert rows(lenient)[0][1] is None
    sandbox.sql("insert into {t} values (1, -11), (2, 1)")
    for view in (strict, lenient):
        view.refresh()
    assert rows(strict) == [(1, BIGGEST - 10), (2, 5)]
    assert [r[1] for r in rows(lenient)] == [BIGGEST - 10, 5]
    sandbox.sql("delete from {t} where v in (1, -11)")
    checked(strict)
    checked(lenient)


@night
def test_decimal_sums_keep_every_digit(sandbox: MemorySandbox) -> None:
    """decimal(38,18): no digit of the scale is given up by merging."""
    large, small = Decimal("12345678901234567.000000000000000001"), Decimal("0.000000000000000001")
    sandbox.source("t", "k int, v decimal(38,18)", [(1, large), (1, -small), (2, small)])
    view = sandbox.another("select k, sum(v) s, avg(v) a, max(v) hi, count(v) n from t group by k")
    checked(view)
    for _ in range(2):
        sandbox.sql("insert into {t} select k, v from {t}")
        checked(view)
    assert rows(view)[0][1] == 4 * large - 4 * small
    sandbox.sql("delete from {t} where v > 1")
    checked(view)
    assert rows(view)[0][1] == -4 * small


@night
def test_a_decimal_with_many_digits_behind_the_point(sandbox: MemorySandbox) -> None:
    """Beside an INT, Spark gives up digits of a DECIMAL(38,30)."""
    least = Decimal("0.000000000000000000000000000001")
    sandbox.source("t", "k int, v decimal(38,30), w decimal(38,38)", [(1, least, Decimal("0.5")), (2, None, None)])
    view = sandbox.another("select k, sum(v) s, avg(v) a, sum(w) ws, avg(w) wa from t group by k")
    whole = sandbox.another("select sum(v) s, avg(v) a from t")
    checked(view)
    checked(whole)
    assert [r[1] for r in rows(view)] == [least, None]
    sandbox.sql("insert into {t} values (1, 1234.1, 0.1), (2, -0.000000000000000000000000000003, -0.3)")
    sandbox.sql("delete from {t} where w = 0.5")
    checked(view)
    checked(whole)
    assert rows(whole)[0][0] == Decimal("1234.099999999999999999999999999997")


def test_doubles_do_not_drift(sandbox: MemorySandbox) -> None:
    """1e20 added and deleted leaves exactly the rest, which a running sum of doubles would have lost."""
    sandbox.source("t", "k int, v double", [(1, 0.1), (1, 0.2), (2, 1e-9)])
    view = sandbox.another("select k, sum(v) s, avg(v) a from t group by k")
    checked(view)
    before = rows(view)
    for _ in range(2):
        sandbox.sql("insert into {t} values (1, 1e20), (2, -1e25), (3, 1e20), (3, -1e20), (3, 3.5)")
        view.refresh()
        assert (rows(view)[0][1], rows(view)[2][1]) == (1e20, 3.5)
        sandbox.sql("delete from {t} where abs(v) > 1e19 or k = 3")
        checked(view)
        assert rows(view) == before


def test_nan_and_infinities_come_and_go(sandbox: MemorySandbox) -> None:
    """They have no inverse: the group they leave is recomputed from its rows."""
    sandbox.source("t", "k int, v double", [(1, 0.5), (1, -0.0), (2, 1e300), (3, None)])
    view = sandbox.view(
        "select k, sum(v) s, avg(v) a, min(v) lo, max(v) hi, stddev(v) sd, count(v) n from t group by k"
    )
    checked(view)
    before = rows(view)
    sandbox.sql(
        "insert into {t} values (1, double('NaN')), (2, double('inf')), (3, double('-inf')), (3, double('inf'))"
    )
    checked(view)
    assert math.isnan(rows(view)[0][1]) and rows(view)[1][1] == math.inf and math.isnan(rows(view)[2][1])
    sandbox.sql("delete from {t} where isnan(v) or abs(v) = double('inf')")
    checked(view)
    assert rows(view) == before


def test_moments_under_deletions(sandbox: MemorySandbox) -> None:
    """Variance, covariance and correlation of integers and doubles, of groups of one row, and of constant columns."""
    data = [(k, i, float(i * i), 2.5) for k in range(3) for i in range(k + 1)]
    sandbox.source("t", "k int, i int, v double, c double", data)
    view = sandbox.another("""
        select k, stddev(i) a, var_pop(i) b, stddev_pop(v) c, variance(v) d, covar_samp(i, v) e, covar_pop(v, i) f,
               stddev(c) g, covar_pop(c, v) h, corr(i, v) filter (where k > 0) r
        from t group by k""")
    checked(view)
    sandbox.sql("insert into {t} values (0, 2147483647, 1e6, 2.5), (0, -2147483648, -1e6, 2.5), (1, 5, null, 2.5)")
    checked(view)
    sandbox.sql("delete from {t} where abs(v) = 1e6 or k = 2 and i = 1")
    checked(view)


def test_result_types_are_sparks(sandbox: MemorySandbox) -> None:
    """Types of every answer column come out as in batch, also after nesting."""
    sandbox.source("t", "k int, h smallint, f float, e decimal(5,1)", [(1, 2, 0.1, Decimal("1.5")), (1, 3, 0.2, None)])
    view = sandbox.view(
        "select sum(s) ss, avg(a) aa, max(x) xx, sum(m) mm, min(z) zz from (select k, sum(h) s, avg(e) a, sum(e) x, "
        "sum(f) m, max(f) z from t group by k)"
    )
    checked(view)
    sandbox.sql("insert into {t} values (2, 7, 0.3, 9.9), (1, null, null, -3.3)")
    checked(view)
    assert row(view)["ss"] == 12
