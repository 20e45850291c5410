"""An aggregate that another package maintains: it has a state, where its groups were recomputed without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from deltafold.algebra.errors import ChangedQueryError, UsageError
from deltafold.algebra.monoids.kinds import Group, Mergeable
from deltafold.algebra.monoids.sums import COUNT_X, additive
from tests.adding import package
from tests.sandbox import MemorySandbox, checked

QUERY = "select k, skewness(v) s from t group by k"
GROUP = "deltafold.aggregates"


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
    with package(GROUP, "skewness", skewness):
        checked(view)
        sandbox.sql("insert into {t} values (2, 3)")
        sandbox.sql("delete from {t} where v = 5")
        checked(view)
        assert "skewness(v): skewness, deletions subtract" in str(view.explain())


def tenth(types: tuple[str, ...], mode: str, buffers: int) -> Mergeable | None:
    """Returns the same columns with other sums, as the next release of a package may."""
    monoid = skewness(types, mode, buffers)
    assert isinstance(monoid, Group)
    first, *others = monoid.components
    return replace(monoid, components=(replace(first, lift=first.lift.replace("{x}", "({x} / 10)")), *others))


def test_another_release_of_its_package_changes_the_query(sandbox: MemorySandbox) -> None:
    """Protects from a state that two releases of a package write, whose wrong answer nobody sees."""
    sandbox.source("t", "k int, v double", [(1, 1.0), (1, 5.0), (2, 7.0)])
    checked(sandbox.view(QUERY))
    for change, infer in (("was added", skewness), ("changed", tenth)):
        with package(GROUP, "skewness", infer):
            sandbox.sql("insert into {t} values (1, 3)")
            with pytest.raises(ChangedQueryError, match=f"monoid skewness {change}"):
                sandbox.view(QUERY).refresh()
            assert sandbox.view(QUERY, on_change="rebuild").refresh().verdict == "rebuilt"
    with pytest.raises(ChangedQueryError, match="monoid skewness is no longer used"):
        sandbox.view(QUERY).refresh()
    checked(sandbox.view(QUERY, on_change="rebuild"))


def fails(*_: object) -> Mergeable:
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("infer", "because"),
    [
        (fails, r"it fails for arguments of double \(ValueError: no such thing\)"),
        (lambda *_: "a text", "it returns a str, not a Group, a Monoid or None"),
        (lambda *_: Group("skewness", (COUNT_X,), ("{n}",)), "its monoid has 1 buffers, and Spark's aggregate has 4"),
    ],
    ids=["fails", "no monoid", "other buffers"],
)
def test_a_package_that_misbehaves_is_named(
    sandbox: MemorySandbox, infer: Callable[..., Mergeable], because: str
) -> None:
    sandbox.source("t", "k int, v double", [(1, 1.0)])
    view = sandbox.view(QUERY)
    with (
        package(GROUP, "skewness", infer),
        pytest.raises(UsageError, match=f"entry point skewness of {GROUP}: {because}"),
    ):
        view.explain()
