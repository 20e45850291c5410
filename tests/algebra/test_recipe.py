"""Recipes are bounded, survive JSON, and describe every difference."""

from __future__ import annotations

from deltafold.algebra.recipe import LONGEST_LINE, MOST_LINES, MOST_SHOWN, Current, Recipe

BUILT = Recipe(
    fingerprint="f",
    plan=("project k, s", "  group by k: sum(v)", "    source t (k, v)"),
    columns=(("k", "int"), ("s", "bigint")),
    sources={"t": {"k": "int", "v": "int"}},
    settings={"zone": "UTC"},
    functions={"clean": "1"},
    names=("k", "v", "s"),
    made_by={"Spark": "4.2.0"},
)
TYPES = {"t": {"k": "int", "v": "int", "more": "string"}}


def test_a_recipe_survives_json() -> None:
    assert Recipe.from_json(BUILT.to_json()) == BUILT
    assert Recipe.from_json('{"fingerprint": "f", "of_a_later_release": 1}') == Recipe(fingerprint="f")


def test_a_recipe_is_bounded() -> None:
    long = Recipe(fingerprint="g", plan=tuple(f"line {i} {'x' * 1000}" for i in range(5000)))
    assert len(long.plan) == MOST_LINES
    assert max(map(len, long.plan)) == LONGEST_LINE
    said = Current(long, TYPES).since(BUILT)
    assert len(said) < MOST_SHOWN + 10
    assert any(line.startswith("… and ") for line in said)


def test_each_difference_is_described() -> None:
    now = Recipe(
        fingerprint="g",
        plan=BUILT.plan,
        columns=BUILT.columns,
        sources=BUILT.sources,
        settings={"zone": "Asia/Tokyo"},
        functions={"tidy": "2"},
        names=(),
        made_by=BUILT.made_by,
    )
    assert Current(now, {"t": {"k": "string"}}).since(BUILT) == (
        "column k of source t changed from int to string",
        "column v of source t was dropped or renamed",
        "setting zone changed from UTC to Asia/Tokyo",
        "Python function clean is no longer used",
        "Python function tidy was added",
    )
    assert Current(BUILT, {}).since(BUILT) == ("source t is no longer declared, or its table is missing",)
    assert Current(BUILT, TYPES).since(BUILT) == (
        "the change is in what the record of a plan leaves out: the limit of a loop, or a part that is too long",
    )
