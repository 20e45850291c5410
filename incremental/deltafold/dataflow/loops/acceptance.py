"""Decide which candidates are accepted, as SQL over the touched candidates: all candidates of every key that changed.

| kind | accepted is |
| --- | --- |
| set | of each row one candidate; it stays while it has derivations, else that of the least level with derivations |
| levels, times | every candidate with derivations, as often as it is derived (distinct: once, but those of init) |
| best | of a key and level the best value, where no lower level has one as good |

A *move* is the change of how often a candidate is accepted. Sets are maintained by *retraction*, then *insertion*:
first every accepted candidate without derivations is retracted, round after round; then rows without an accepted
candidate that have derivations are inserted. The other kinds move the lowest level at which something is to change,
again and again. (Why both are exact, and end: docs/explanation/loops.md; retraction first is what
delete-and-rederive does, but here counts at levels show which rows lost their last derivation, so that nothing is
deleted that has another one.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import NotConvergedError
from deltafold.algebra.loops import LEVEL
from deltafold.algebra.program import ROWS
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.loops.candidates import ANSWER, Candidates

KNOWN = "__accepted_rows"
"""How often a touched candidate is accepted now; ROWS has its derivations now."""

RETRACTED, INSERTED, TARGET, LOWEST = "__retracted", "__inserted", "__target", "__lowest"


@dataclass(frozen=True)
class RoundChange:
    """The candidates that one round accepts or rejects.

    sql: the change of KNOWN of a candidate; rows: the number of candidates; phase: what the round does.
    beyond: whether it accepts one at the loop's limit. Of a set such a row may be at a lower level in a run from
    nothing, since a row stays at its level when it is derived at a lower one as well.
    """

    sql: str
    rows: int
    phase: str
    beyond: bool = False


@dataclass(frozen=True)
class RetractThenInsert:
    """Choose the candidates of a loop over a set: first all retractions, then insertions."""

    candidates: Candidates

    def judge(self, touched: DataFrame) -> DataFrame:
        """Add what is to be retracted and inserted."""
        window = f"OVER (PARTITION BY {', '.join(map(quoted, self.candidates.key))})"
        least = f"min(if({ROWS} > 0, {LEVEL}, NULL)) {window}"
        return touched.selectExpr(
            "*",
            f"if({KNOWN} > 0 AND {ROWS} = 0, -1L, 0L) AS {RETRACTED}",
            f"if(max({KNOWN}) {window} = 0 AND {LEVEL} = {least}, 1L, 0L) AS {INSERTED}",
        )

    @property
    def measures(self) -> list[Column]:
        """The aggregates over judged candidates that choose the move."""
        counted = [F.expr(f"count_if({name} <> 0) AS {name}") for name in (RETRACTED, INSERTED)]
        beyond = F.expr(f"count_if({INSERTED} <> 0 AND {LEVEL} >= {self.candidates.loop.limit}) AS beyond")
        return [*counted, beyond]

    def move(self, measures: Mapping[str, Any]) -> RoundChange | None:
        """Return the next move; None if there is none."""
        if measures[RETRACTED]:
            return RoundChange(RETRACTED, measures[RETRACTED], "retract")
        if measures[INSERTED]:
            return RoundChange(INSERTED, measures[INSERTED], "insert", beyond=bool(measures["beyond"]))
        return None

    def accepted_sql(self) -> str:
        """Return SQL of `__accepted` of a candidate, after the last round."""
        return f"if({KNOWN} > 0, {ANSWER}, 0)"


@dataclass(frozen=True)
class ByLevel:
    """Choose the candidates of a loop by level, or of the best value of a key: those of the lowest level that changes.

    within: that level is found together with the candidates, since one task reads all of them.
    """

    candidates: Candidates
    within: bool

    def judge(self, touched: DataFrame) -> DataFrame:
        """Add how often each candidate is to be accepted, as far as the counts at lower levels are final."""
        targets = self._targets(touched)
        lowest = f"min(if({TARGET} <> {KNOWN}, {LEVEL}, NULL)) OVER () AS {LOWEST}"
        return targets.selectExpr("*", lowest) if self.within else targets

    def _targets(self, touched: DataFrame) -> DataFrame:
        if self.candidates.is_levelled_bag:
            target = f"if({ROWS} > 0, {self.candidates.copies_sql(ROWS)}, 0L)"
            return touched.selectExpr("*", f"{target} AS {TARGET}")
        key = ", ".join(map(quoted, self.candidates.key))
        value, (least, below) = self.candidates.value_sql(), self.candidates.best_of
        derived = f"{least}(if({ROWS} > 0, {value}, NULL))"
        here = f"{derived} OVER (PARTITION BY {key}, {LEVEL})"
        lower = (
            f"{derived} OVER (PARTITION BY {key} ORDER BY {LEVEL} RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        )
        compared = touched.selectExpr("*", f"{here} AS __here", f"{lower} AS __lower")
        target = f"{ROWS} > 0 AND {value} <=> __here AND (__lower IS NULL OR __here {below} __lower)"
        return compared.withColumn(TARGET, F.expr(f"if({target}, 1L, 0L)")).drop("__here", "__lower")

    @property
    def measures(self) -> list[Column]:
        """The aggregates over judged candidates that choose the move."""
        moved = f"{TARGET} <> {KNOWN}"
        limit = self.candidates.loop.limit
        return [
            F.expr(f"min(if({moved}, {LEVEL}, NULL)) AS level"),
            F.expr(f"min(if({moved} AND {TARGET} > 0 AND {LEVEL} >= {limit}, {LEVEL}, NULL)) AS beyond"),
            F.expr(f"count_if({moved}) AS moved"),
        ]

    def move(self, measures: Mapping[str, Any]) -> RoundChange | None:
        """Return the candidates of the lowest level that are to change; raises NotConvergedError beyond the limit."""
        level = measures.get("level")
        if level is None:
            return None
        if measures.get("beyond") == level:
            raise beyond_limit(self.candidates)
        which = LOWEST if self.within else str(level)
        return RoundChange(f"if({LEVEL} <=> {which}, {TARGET} - {KNOWN}, 0L)", measures["moved"], "levels")

    def accepted_sql(self) -> str:
        """Return SQL of `__accepted` of a candidate, after the last round."""
        if self.candidates.is_levelled_bag:
            return f"if({KNOWN} > 0, {ANSWER}, 0)"
        return self.candidates.last_accepted_sql(KNOWN)


Acceptance = RetractThenInsert | ByLevel


def acceptance_of(candidates: Candidates, *, small: bool) -> Acceptance:
    """Return how the candidates of a loop are accepted, by its kind; small: one task judges them."""
    return RetractThenInsert(candidates) if candidates.loop.traits.is_set else ByLevel(candidates, small)


def beyond_limit(candidates: Candidates) -> NotConvergedError:
    """Build the error for more rounds than a loop may have."""
    loop = candidates.loop
    if loop.traits.by_one_level:
        return NotConvergedError(
            f"recursion {loop.name}: more than {loop.limit} levels have rows (RECURSION_LEVEL_LIMIT_EXCEEDED). Look "
            "for a cycle in the data; UNION instead of UNION ALL drops rows that were found before. Else raise the "
            "limit: MAX RECURSION LEVEL in the query, or spark.sql.cteRecursionLevelLimit."
        )
    return NotConvergedError(
        f"recursion {loop.name}: it still changes after {loop.limit} rounds. Let the step derive only rows from a "
        "finite set, or give fixpoint a higher limit (in SQL: MAX RECURSION LEVEL)."
    )
