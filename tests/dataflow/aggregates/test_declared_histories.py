"""Declared monoids over random histories, compared with a fold in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pytest

from tests.dataflow.aggregates.test_declared_monoids import SPREAD, TURNED
from tests.night import night, sampled
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, checked, rows


@dataclass(frozen=True)
class Fold:
    """A monoid in Python."""

    declared: dict[str, str]
    zero: Any
    plus: Callable[[Any, Any], Any]
    unit: Callable[[Any], Any]

    def of(self, values: Iterable[Any]) -> Any:
        return reduce(self.plus, map(self.unit, values), self.zero)


def widest(a: Any, b: Any) -> Any:
    """The spread of both."""
    return b if a is None else a if b is None else (min(a[0], b[0]), max(a[1], b[1]))


FOLDS = [
    Fold(SPREAD, None, widest, lambda x: (x, x)),
    Fold(TURNED, 0, lambda a, b: (a + b) % 360, lambda x: x % 360),
    Fold(
        {"name": "sample", "type": "ARRAY<INT>", "zero": "array()", "unit": "array(x)", "of": "INT",
         "plus": "slice(array_sort(concat(a, b)), 1, 3)"},
        (), lambda a, b: tuple(sorted(a + b)[:3]), lambda x: (x,),
    ),
]  # fmt: skip


@pytest.mark.parametrize("fold", sampled(FOLDS, lambda fold: fold is not FOLDS[0], lambda fold: fold.declared["name"]))
def test_random_histories(sandbox: MemorySandbox, long: bool, fold: Fold) -> None:
    """Against a fold in Python of the rows that remain."""
    r = random.Random(5)
    follow(sandbox, fold, r, 30 if long else 3)


@night
@pytest.mark.parametrize("fold", sampled(FOLDS[:2], lambda fold: fold is FOLDS[0], lambda fold: fold.declared["name"]))
def test_on_delta(delta: DeltaSandbox, fold: Fold) -> None:
    """A MERGE of Delta's evaluates the folds of the definition, too."""
    delta.tune(rewrite_files=0, rewrite_touched_bytes=0)
    follow(delta, fold, random.Random(6), 2)


def follow(sandbox: Sandbox, fold: Fold, r: random.Random, steps: int) -> None:
    """Insert, update and delete random rows, and compare every refresh."""
    held = [made(r) for _ in range(12)]
    sandbox.source("t", "k int, v int", held)
    sandbox.warehouse.monoid(**fold.declared)
    view = sandbox.view(f"select k, {fold.declared['name']}(collect_list(v)) m from t group by k")
    for _ in range(steps):
        checked(view)
        expected = {k: fold.of(v for key, v in held if key == k and v is not None) for k in {k for k, _ in held}}
        assert {k: plain(m) for k, m in rows(view)} == expected
        low, more = r.randrange(-400, 400), [made(r) for _ in range(r.randrange(5))]
        sandbox.sql(f"delete from {{t}} where v between {low} and {low + 150}")
        held = [(k, v) for k, v in held if v is None or not low <= v <= low + 150]
        if more:
            sandbox.insert("t", "k int, v int", more)
            held += more


def made(r: random.Random) -> tuple[int, int | None]:
    return r.randrange(3), r.choice([None, r.randrange(-400, 400), r.randrange(-400, 400), 7])


def plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, (tuple, list)) else value
