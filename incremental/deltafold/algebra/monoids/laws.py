"""Write the SQL that checks the laws of a declared monoid on sampled values.

| law | for all values u, v, w |
| --- | --- |
| zero | plus(zero, u) = u = plus(u, zero) |
| commutative | plus(u, v) = plus(v, u) |
| associative | plus(plus(u, v), w) = plus(u, plus(v, w)) |
| inverse, if declared | plus(u, inverse(u)) = zero |
"""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.algebra.monoids.declared import DeclaredMonoid


@dataclass(frozen=True)
class Law:
    """Two sides that must be equal, in SQL over u, v and w.

    fault: the sentence for a violation; example: its values of u, v, w, left and right; instead: the fix.
    """

    left: str
    right: str
    fault: str
    example: str
    instead: str


def laws_of(monoid: DeclaredMonoid) -> tuple[Law, ...]:
    """Return the laws that a declared monoid must obey."""
    plus, zero = monoid.plus_sql, monoid.zero_sql
    neutral = "zero is not neutral", "plus of {u} and zero is {left}", "Correct zero or plus"
    found = [
        Law(plus("u", zero), "u", *neutral),
        Law(plus(zero, "u"), "u", *neutral),
        Law(
            plus("u", "v"), plus("v", "u"),
            "plus is not commutative", "of {u} and {v} it is {left}, exchanged {right}",
            "Let it break ties, for example by the larger of two equal values",
        ),
        Law(
            plus(plus("u", "v"), "w"), plus("u", plus("v", "w")),
            "plus is not associative", "of {u}, {v} and {w} it is {left} from the left and {right} from the right",
            "Correct it; sums of DOUBLE are rounded, so add DECIMAL values",
        ),
    ]  # fmt: skip
    if monoid.inverse is not None:
        fault, example = "inverse does not cancel", "plus of {u} and its inverse is {left}, not {right}"
        instead = "Correct it, or remove it: deletions then recompute their groups"
        found.append(Law(plus("u", monoid.inverse_sql("u")), zero, fault, example, instead))
    return tuple(found)


def sample_sql(value: str, most: int) -> str:
    """Return an aggregate over rows: different values of an expression, `most` of them, chosen by their hashes."""
    hashed = f"transform(collect_set({value}), v -> named_struct('h', xxhash64(v), 'v', v))"
    return f"transform(slice(array_sort({hashed}), 1, {most}), p -> p.v)"


def extended_sql(monoid: DeclaredMonoid, values: str) -> str:
    """Return an array of values with the zero and the merges of neighbours."""
    merges = monoid.plus_sql(f"element_at({values}, i)", f"element_at({values}, i + 1)")
    pairs = f"transform(sequence(1, greatest(size({values}) - 1, 1)), i -> {merges})"
    return f"concat({values}, array({monoid.zero_sql}), if(size({values}) > 1, {pairs}, array()))"


def counterexample_sql(monoid: DeclaredMonoid) -> str:
    """Return an aggregate over rows of u, v and w: the first broken law with its values as text; NULL for none.

    Its fields are the law's position in `laws_of`, u, v, w, left and right.
    """
    shown = ", ".join(f"'{name}', CAST({name} AS STRING)" for name in "uvw")
    cases = [
        f"WHEN NOT ({law.left} <=> {law.right}) THEN named_struct('law', {number}, {shown}, "
        f"'left', CAST({law.left} AS STRING), 'right', CAST({law.right} AS STRING))"
        for number, law in enumerate(laws_of(monoid))
    ]
    return f"min(CASE {' '.join(cases)} END)"
