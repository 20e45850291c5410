"""Define monoids that users declare in SQL (MRQL section 7): function of Spark, accumulator, and the check of the laws.

`name(collect_list(x))` in a query is a SQL function that folds the collected values, so Spark alone evaluates the batch
query. The state keeps the merged value of each group; deletions subtract if there is an inverse that cancels the
deleted value (NaN has none), and otherwise recompute the group.

| law, checked on sampled values | for all values u, v, w |
| --- | --- |
| zero | plus(zero, u) = u = plus(u, zero) |
| commutative | plus(u, v) = plus(v, u) |
| associative | plus(plus(u, v), w) = plus(u, plus(v, w)) |
| inverse, if declared | plus(u, inverse(u)) = zero |
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from deltafold.algebra.monoids.kinds import Component, Monoid
from deltafold.algebra.monoids.sums import DELETED_X

MARK = "a monoid that Deltafold merges"  # the comment of its SQL function, by which it is recognised


@dataclass(frozen=True, kw_only=True)
class DeclaredMonoid:
    """A merge of values, in SQL of Spark.

    name: of the SQL function; type: DDL type of merged values; zero: the value for no values; plus: the merge of `a`
    and `b`; unit: the value of one collected value `x`, by default `x` itself; inverse: the value that cancels `a`, if
    there is one; of: DDL type of collected values, by default `type`.
    """

    name: str
    type: str
    zero: str
    plus: str
    unit: str | None = None
    inverse: str | None = None
    of: str | None = None

    @property
    def text(self) -> str:
        """The definition in one line, for explain and for the fingerprint of a query."""
        parts = {"zero": self.zero, "plus": self.plus, "unit": self.unit, "inverse": self.inverse, "of": self.of}
        return ", ".join([self.type, *(f"{name} {' '.join(sql.split())}" for name, sql in parts.items() if sql)])

    @property
    def digest(self) -> str:
        """The same for the same definition: 12 hexadecimal digits."""
        fields = (self.name, self.type, self.zero, self.plus, self.unit, self.inverse, self.of)
        return hashlib.sha256(repr(fields).encode()).hexdigest()[:12]

    @property
    def of_type(self) -> str:
        """The type of collected values."""
        return self.of or self.type

    @property
    def create_sql(self) -> str:
        """The statement that creates the SQL function in a session."""
        return (
            f"CREATE OR REPLACE TEMPORARY FUNCTION `{self.name}`(xs ARRAY<{self.of_type}>) RETURNS {self.type} "
            f"COMMENT '{MARK}' RETURN {self.fold_sql('xs')}"
        )

    @property
    def zero_sql(self) -> str:
        """The zero with its type."""
        return self._cast(self.zero)

    def fold_sql(self, xs: str) -> str:
        """Return the fold of an array of collected values."""
        values = xs if self.unit is None else f"transform({xs}, x -> {self._cast(self.unit)})"
        return f"aggregate({values}, {self.zero_sql}, (a, b) -> {self._cast(self.plus)})"

    def plus_sql(self, one: str, other: str) -> str:
        """Return the merge of two values."""
        return f"aggregate(array({other}), {one}, (a, b) -> {self._cast(self.plus)})"

    def unit_sql(self, x: str) -> str:
        """Return the value of one collected value."""
        return self._cast(x) if self.unit is None else f"transform(array({x}), x -> {self._cast(self.unit)})[0]"

    def inverse_sql(self, value: str) -> str:
        """Return the value that cancels another one."""
        assert self.inverse is not None
        return f"transform(array({value}), a -> {self._cast(self.inverse)})[0]"

    def accumulator(self) -> Monoid:
        """Return how a state keeps the merged value; the one buffer is the answer."""
        template = self._as_template()
        added, deleted = (
            template.fold_sql(f"CAST(collect_list(if({{w}} {sign} 0, {{x}}, NULL)) AS ARRAY<{template.of_type}>)")
            for sign in "><"
        )
        if self.inverse is None:
            lift = added
            watched = DELETED_X
            deletions = Monoid.deletions
        else:
            inverse = template.inverse_sql(deleted)
            lift = template.plus_sql(added, inverse)
            cancels = f"{template.plus_sql(deleted, inverse)} <=> {template.zero_sql}"
            watched = Component(name="gone", type="bigint", lift=f"if({cancels}, 0L, 1L)", zero="0")
            deletions = "deletions subtract, but that of a value that its inverse does not cancel recomputes the group"
        merge = template.plus_sql("{t[m]}", "{u[m]}")
        return Monoid(
            name=f"monoid {self.name}",
            components=(Component(name="m", type=self.type, lift=lift, merge=merge, zero=self.zero_sql),),
            buffers=("{m}",),
            watched=(watched,),
            unit_weights=True,
            deletions=deletions,
        )

    def _as_template(self) -> DeclaredMonoid:
        """Return the definition with its braces doubled, for SQL that is formatted later."""
        sql = {field: getattr(self, field) for field in ("type", "zero", "plus", "unit", "inverse", "of")}
        return replace(self, **{k: v and v.replace("{", "{{").replace("}", "}}") for k, v in sql.items()})

    def _cast(self, sql: str) -> str:
        end = "\n" if "--" in sql else ""  # a comment ends with its line
        return f"CAST(({sql}{end}) AS {self.type})"


@dataclass(frozen=True, kw_only=True)
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
    plus = monoid.plus_sql
    zero = monoid.zero_sql
    neutral = Law(
        left=plus("u", zero),
        right="u",
        fault="zero is not neutral",
        example="plus of {u} and zero is {left}",
        instead="Correct zero or plus",
    )
    commutative = Law(
        left=plus("u", "v"),
        right=plus("v", "u"),
        fault="plus is not commutative",
        example="of {u} and {v} it is {left}, exchanged {right}",
        instead="Let it break ties, for example by the larger of two equal values",
    )
    associative = Law(
        left=plus(plus("u", "v"), "w"),
        right=plus("u", plus("v", "w")),
        fault="plus is not associative",
        example="of {u}, {v} and {w} it is {left} from the left and {right} from the right",
        instead="Correct it; sums of DOUBLE are rounded, so add DECIMAL values",
    )
    laws = (neutral, replace(neutral, left=plus(zero, "u")), commutative, associative)
    if monoid.inverse is None:
        return laws
    inverse = Law(
        left=plus("u", monoid.inverse_sql("u")),
        right=zero,
        fault="inverse does not cancel",
        example="plus of {u} and its inverse is {left}, not {right}",
        instead="Correct it, or remove it: deletions then recompute their groups",
    )
    return (*laws, inverse)


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
