"""An aggregate that another package maintains: it has a state, where its groups were recomputed without."""

from __future__ import annotations

from deltafold.algebra.monoids.kinds import Group, Mergeable
from deltafold.algebra.monoids.sums import COUNT_X, additive
from tests.adding import package
from tests.sandbox import MemorySandbox, checked

QUERY = "select k, skewness(v) s from t group by k"


def skewness(types: tuple[str, ...], mode: str, buffers: int) -> Mergeable | None:
    """Returns exact sums of x, x² and x³, and Spark's buffers over them: n, mean, and two central moments."""
    if types != ("double",) or buffers != 4:
        return None
    powers = ("{x}", "{x} * {x}", "{x} * {x} * {x}")
    sums = tuple(additive(f"s{i}", "double", f"{power} * {{w}}") for i, power in enumerate(powers, 1))
    mean = "if({n} = 0, 0D, {s1} / {n})"
    second = f"({{s2}} - {mean} * {{s1}})"
    third = f"({{s3}} - 3 * {mean} * {{s2}} + 2 * {mean} * {mean} * {{s1}})"
    return Group("skewness", (*sums, COUNT_X), ("CAST({n} AS DOUBLE)", mean, second, third))


def test_its_groups_are_merged(sandbox: MemorySandbox) -> None:
    """Protects from a list of aggregates that another package cannot add to; by two values, sums are exact."""
    sandbox.source("t", "k int, v double", [(1, 1.0), (1, 5.0), (2, 7.0)])
    view = sandbox.view(QUERY)
    with package("deltafold.aggregates", "skewness", skewness):
        checked(view)
        sandbox.sql("insert into {t} values (2, 3)")
        sandbox.sql("delete from {t} where v = 5")
        checked(view)
        assert "skewness(v): skewness, deletions subtract" in str(view.explain())
