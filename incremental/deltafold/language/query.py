"""Define a query as a user gives it, and as a plan of the algebra with its answer columns, order and settings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.canonical import fingerprint_text
from deltafold.algebra.errors import Refusal
from deltafold.algebra.monoids.declared import DeclaredMonoid
from deltafold.algebra.monoids.family import infer_added_call
from deltafold.algebra.plan import Aggregate, Call, Column, GroupwiseOp, Plan
from deltafold.algebra.recipe import MONOID_MARK
from deltafold.algebra.traversal import source_names, walk
from deltafold.language.query_language import LanguageQuery
from deltafold.spark.session_state import explicit_settings

Settings = tuple[tuple[str, str], ...]
Monoids = Mapping[str, DeclaredMonoid]
NO_MONOIDS: Monoids = {}
QueryText = str | LanguageQuery | Callable[..., DataFrame]
ANSI = "spark.sql.ansi.enabled"
TIME_ZONE = "spark.sql.session.timeZone"
# settings that change the results of functions
MEANING = ("spark.sql.legacy.", "spark.sql.mapKeyDedupPolicy", "spark.sql.jsonGenerator.", "spark.sql.variant.")
PYTHON_FUNCTION = re.compile(r" ~ python (\S+) ([0-9a-f]{12})")


@dataclass(frozen=True)
class Ordering:
    """One key of the answer's ORDER BY: a view column, its direction, the position of NULL."""

    name: str
    ascending: bool
    nulls_first: bool


@dataclass(frozen=True, kw_only=True)
class Query:
    """A translated query.

    plan: its algebra; outputs: the plan's column and the user's name of each answer column; ordering: the answer's
    order; forbidden: expressions without a fixed value; clocked: expressions that read the clock; settings: those that
    the answer depends on (ANSI, time zone); attributes: Spark's attribute of each column name, for the runtime's
    lowering; names: those of the plan's columns; loops: the names of the loops that it calls, in the order of the
    calls; built_as: the fingerprint that it had when columns of the sources `grown` had fewer fields, of which it reads
    none, or types of columns were narrower.
    """

    plan: Plan
    outputs: tuple[tuple[Column, str], ...]
    ordering: tuple[Ordering, ...]
    forbidden: tuple[Refusal, ...]
    clocked: tuple[Refusal, ...]
    settings: Settings
    attributes: Mapping[str, Any]
    names: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    built_as: str = ""
    grown: frozenset[str] = frozenset()

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources the query reads."""
        return source_names(self.plan)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Why no state of it can be kept, by its expressions."""
        return (*self.forbidden, *self.clocked)

    @property
    def determined(self) -> bool:
        """Whether two runs over the same rows, at the same time of the clock, give the same answer."""
        if self.forbidden or (self.clocked and self.loops):  # the steps of a loop are queries of their own
            return False
        return not any(isinstance(n, GroupwiseOp) and n.undetermined for n in walk(self.plan))

    @property
    def fingerprint(self) -> str:
        """The same for the same query in every process: 16 hexadecimal digits."""
        if self.built_as:
            return self.built_as
        names = tuple(name for _, name in self.outputs)
        columns = tuple(column.name for column, _ in self.outputs)
        text = fingerprint_text((self.plan, columns, names, self.settings))
        if added := self._added_aggregates:
            text += fingerprint_text(tuple(sorted(added.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def functions(self) -> dict[str, str]:
        """The digests of its Python functions, declared monoids and added aggregates by name; of several of one all."""
        digests = dict[str, str]()
        for name, digest in sorted(set(PYTHON_FUNCTION.findall(fingerprint_text(self.plan)))):
            digests[name] = f"{digests[name]} {digest}" if name in digests else digest
        declared = (call.declared for call in self._calls)
        digests |= {f"{MONOID_MARK}{monoid.name}": monoid.digest for monoid in declared if monoid is not None}
        return digests | {f"{MONOID_MARK}{name}": digest for name, digest in self._added_aggregates.items()}

    @property
    def _calls(self) -> Iterator[Call]:
        return (call for node in walk(self.plan) if isinstance(node, Aggregate) for call in node.calls)

    @property
    def _added_aggregates(self) -> dict[str, str]:
        """The digests of the aggregates that other packages add: their next release may keep other columns (D-247)."""
        texts = dict[str, set[str]]()
        for call in self._calls:
            if (added := infer_added_call(call)) is not None:
                texts.setdefault(call.function, set()).add(fingerprint_text(added))
        return {n: hashlib.sha256(" ".join(sorted(found)).encode()).hexdigest()[:12] for n, found in texts.items()}


def answer_settings(spark: SparkSession) -> Settings:
    """Return the settings that an answer depends on: two always, others if they are set explicitly."""
    explicit = explicit_settings(spark)
    others = sorted((key, value) for key, value in explicit.items() if key.startswith(MEANING))
    return (*((key, str(spark.conf.get(key))) for key in (ANSI, TIME_ZONE)), *others)
