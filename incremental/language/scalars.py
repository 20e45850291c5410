"""Language room: Catalyst expressions → opaque scalars. In: a resolved expression. Out: text, columns, type, handle.

The handle keeps Spark's expression with its attributes renamed to the plan's unique names; nothing is re-parsed.
Also finds what the promise forbids: expressions whose value is not a function of the row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from incremental.algebra.plan import Opaque, Reference, Scalar
from incremental.language.functions import FUNCTIONS, function_digest
from incremental.language.names import Names, type_text
from incremental.language.unsaid import Unsaid
from incremental.spark import catalyst
from incremental.spark.catalyst import J

CLOCK = {"CurrentDate", "CurrentTimestamp", "Now", "LocalTimestamp", "CurrentTime", "UnixTimestampNow"}
MOMENTS = {"now", "today", "tomorrow", "yesterday"}
CONTEXT = {
    "InputFileName",
    "InputFileBlockStart",
    "InputFileBlockLength",
    "SparkPartitionID",
    "MonotonicallyIncreasingID",
}
SESSION = {"CurrentUser", "CurrentDatabase", "CurrentCatalog"}
# Spark counts on from query to query
NUMBER = re.compile(r"#\d+L?|(?<=\bUnionLoop )\d+|(?<=\bUnionLoopRef )\d+|(?<=\bCTERelation(?:Def|Ref) )\d+")


@dataclass(frozen=True)
class Forbidden:
    """An expression that has no fixed value: its text, why, and what to write instead."""

    text: str
    because: str
    instead: str


class Scalars:
    """Turns expressions into scalars; `forbidden` collects what no view may depend on."""

    def __init__(self, spark: SparkSession, names: Names) -> None:
        self._spark = spark
        self._names = names
        self._unsaid = Unsaid(spark)
        self.forbidden: list[Forbidden] = []

    def scalar(self, expression: J) -> Scalar:
        """A reference for a bare column, else an opaque scalar."""
        if catalyst.kind(expression) == "AttributeReference":
            return Reference(self._names.column(expression))
        return self.opaque(expression)

    def opaque(self, expression: J) -> Opaque:
        """An opaque scalar of any expression, its attributes renamed."""
        renamed = self._renamed(expression)
        self._inspect(renamed)
        columns = frozenset(str(attribute.name()) for attribute in self._references(renamed))
        return Opaque(self._said(renamed), type_text(renamed.dataType()), columns, renamed)

    def operated(self, expression: J) -> str:
        """The text of an expression that stays within an operator of Spark's."""
        renamed = self._renamed(expression)
        for part in rowwise(renamed):
            self._inspect(part)
        return self._said(renamed)

    def text(self, expression: J) -> str:
        """The text of an expression that is kept for what it is, whether or not it may be."""
        return self._said(self._renamed(expression))

    def _renamed(self, expression: J) -> J:
        """The expression over the plan's unique names."""

        def replace(node: J) -> J | None:
            if catalyst.kind(node) != "AttributeReference":
                return None
            return self._names.attribute(self._names.column(node))

        return catalyst.rewrite(self._spark, expression, replace)

    def _references(self, expression: J) -> list[J]:
        return catalyst.sequence(expression.references().toSeq())

    def _inspect(self, expression: J) -> None:
        for node in catalyst.subexpressions(expression):
            name = catalyst.kind(node)
            clock = name in CLOCK or (name == "Cast" and is_moment(node))
            if not clock and name not in CONTEXT | SESSION and node.deterministic():
                continue
            if clock:
                because, instead = "its value changes with the clock", "pass the date as a column or a literal"
            elif name in SESSION:
                because, instead = "its value depends on who runs the query, and where", "write it as a literal"
            elif name in CONTEXT:
                because, instead = (
                    "its value depends on files and partitions, not on rows",
                    "use a column of the source",
                )
            else:
                because, instead = (
                    "it gives another value each time",
                    "use a deterministic expression, such as a hash of a key",
                )
            self.forbid(self._said(node), because, instead)
            return

    def _said(self, expression: J) -> str:
        """Deterministic text of an expression: Spark's SQL, and what that leaves out of it."""
        text = re.sub(r"\b(\w+)\.`?(\w+)`?(?=#)", r"\2", str(expression.sql()))
        told, seen = "", Counter[str]()
        for node in catalyst.subexpressions(expression):
            kind = catalyst.kind(node)
            if kind in FUNCTIONS:
                told += f" ~ python {node.name()} {function_digest(node)}"
            seen[kind] += 1
            told += self._unsaid.of(node, kind, seen[kind], typed=node is expression)
        if "namedlambdavariable" in text + told:
            text = f"{text} ~ {numbered(str(expression.toString()))}"
        return text + told

    def forbid(self, text: str, because: str, instead: str) -> None:
        """Remember an expression that no maintained view may contain."""
        self.forbidden.append(Forbidden(text, because, instead))


def rowwise(expression: J) -> Iterable[J]:
    """What an expression reads of rows: of windows and aggregates the arguments, for ties settles what they choose."""
    match catalyst.kind(expression):
        case "WindowExpression":
            parts = catalyst.sequence(expression.children())
        case "AggregateExpression":
            parts = [*catalyst.sequence(expression.aggregateFunction().children())]
            parts += [] if (condition := catalyst.option(expression.filter())) is None else [condition]
        case _:
            return [expression]
    return [each for part in parts for each in rowwise(part)]


def is_moment(cast: J) -> bool:
    """Whether a text that means a moment of the clock ('now', 'today') is cast to a date or timestamp."""
    if type_text(cast.dataType()).lower() not in ("date", "timestamp", "timestamp_ntz"):
        return False
    text = cast.child()
    return catalyst.kind(text) == "Literal" and str(text.value()).strip().lower() in MOMENTS


def numbered(text: str) -> str:
    """Spark's text of a plan or an expression, its numbers of expressions and of recursions by their first sight."""
    seen: dict[str, str] = {}
    return NUMBER.sub(lambda m: seen.setdefault(m[0].rstrip("L"), f"#{len(seen)}"), text)
