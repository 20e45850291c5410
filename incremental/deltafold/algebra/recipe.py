"""Record everything that a stored answer depends on, in readable form, and compare two such recipes.

The fingerprint decides whether a state belongs to a query; the recipe explains the changes. It is stored in the journal
for each fingerprint and is bounded: a long line is cut, and only the first lines of a long plan are kept.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from deltafold.algebra.results.report import Json

LONGEST_LINE = 240
MOST_LINES = 400
MOST_NAMES = 4000
MOST_SHOWN = 20  # lines of the plan in a message
UNRECORDED = "the change is in what the record of a plan leaves out: the limit of a loop, or a part that is too long"
SOURCE_LINE = re.compile(r"\s*source (\w+) \((.*)[)…]")  # of a plan: the columns read, cut by earlier releases alone
MONOID_MARK = "monoid "  # before the name of a declared monoid, among `Recipe.functions`: others have no space


@dataclass(frozen=True, kw_only=True)
class Recipe(Json):
    """A query with everything that its answer depends on.

    plan: its operators, one a line, the answer first; columns: name and type of the answer's columns; sources: the type
    of each column that it reads, by source; settings: the relevant ones of Spark; functions: a digest of each Python
    function and declared monoid; names: the plan's column names in the order of their creation, which state tables are
    named by; made_by: the releases of Deltafold and Spark.
    """

    fingerprint: str
    plan: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    functions: Mapping[str, str] = field(default_factory=dict[str, str])
    names: tuple[str, ...] = ()
    made_by: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan", tuple(map(cut_line, self.plan[:MOST_LINES])))
        object.__setattr__(self, "columns", tuple((name, type_) for name, type_ in self.columns))  # JSON has lists
        object.__setattr__(self, "names", tuple(self.names) if len(self.names) <= MOST_NAMES else ())

    @property
    def orders(self) -> dict[str, list[str]]:
        """The order in which the columns of each source were in its table, as far as the plan reads them."""
        sorters: dict[str, TopologicalSorter[str]] = {}
        for name, fields in (match.groups() for match in map(SOURCE_LINE.fullmatch, self.plan) if match):
            columns = [text.rpartition(" AS ")[0] or text for text in fields.split(", ")]
            for pair in itertools.pairwise(columns):
                sorters.setdefault(name, TopologicalSorter()).add(pair[1], pair[0])
        try:
            return {name: list(sorter.static_order()) for name, sorter in sorters.items()}
        except CycleError:  # a name with a comma: then no order is known
            return {}


def cut_line(line: str) -> str:
    """Return a line of a plan in a bounded length, but of a source with all of its columns."""
    whole = len(line) <= LONGEST_LINE or SOURCE_LINE.fullmatch(line)
    return line if whole else f"{line[: LONGEST_LINE - 1]}…"


@dataclass(frozen=True)
class OtherTypes:
    """What other types of source columns change under the same query.

    since: the fingerprint of the state that was built before; effect: what wider types change, in words; same_answer:
    whether the answer is the same, so that the view goes on from copies of its states.
    """

    since: str
    effect: str = ""
    same_answer: bool = False


@dataclass(frozen=True)
class Current:
    """The recipe of a view's query today, and the types of all columns of its sources.

    retyped: what the types of its sources change, if nothing else changed since the state was built; guard: how an
    expression avoids an error, in the query's language if that is not SQL.
    """

    recipe: Recipe
    types: Mapping[str, Mapping[str, str]]
    retyped: OtherTypes | None = None
    guard: str = ""

    def since(self, kept: Recipe | None) -> tuple[str, ...]:
        """Return what changed since a state was built from another recipe, one change a line."""
        if kept is None:
            return ("the earlier query is unknown: the release that built the state did not record it",)
        lines = describe_changes(kept, self.recipe, self.types)
        effect = self.retyped.effect if self.retyped is not None and self.retyped.since == kept.fingerprint else ""
        return (*lines, effect) if effect else lines

    def find_retyped(self, kept: Recipe | None) -> tuple[str, ...]:
        """Return the columns of sources that have other types, if nothing else changed since a state was built."""
        if kept is None or self.retyped is None or self.retyped.since != kept.fingerprint:
            return ()
        return tuple(describe_column_changes(kept, self.types))

    def continues(self, fingerprint: str) -> bool:
        """Return whether the answer is that of a state, which is copied into wider types."""
        return self.retyped is not None and self.retyped.same_answer and self.retyped.since == fingerprint


def describe_column_changes(old: Recipe, now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the changes of the source columns that a recipe reads; now: the types of all columns of the sources."""
    lines: list[str] = []
    for source, columns in old.sources.items():
        for name, type_then in columns.items():
            if source not in now:
                lines.append(f"source {source} is no longer declared, or its table is missing")
                break
            type_now = now[source].get(name)
            if type_now is None:
                lines.append(f"column {name} of source {source} was dropped or renamed")
            elif type_now != type_then:
                lines.append(f"column {name} of source {source} changed from {type_then} to {type_now}")
    return lines


def describe_changes(old: Recipe, new: Recipe, now: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Return what changed between two recipes, one change a line; now: the types of all columns of the sources."""
    lines = describe_column_changes(old, now)
    for name, then, today in compare_mappings(old.settings, new.settings):
        lines.append(f"setting {name} changed from {then or 'not set'} to {today or 'not set'}")
    for name, then, today in compare_mappings(old.functions, new.functions):
        change = "changed" if then and today else "was added" if today else "is no longer used"
        lines.append(f"{'' if name.startswith(MONOID_MARK) else 'Python function '}{name} {change}")
    columns_then = [" ".join(column) for column in old.columns]
    columns_now = [" ".join(column) for column in new.columns]
    lines += [f"answer column: {line}" for line in diff_lines(columns_then, columns_now)]
    plan = list(map(name_computed_keys, diff_lines(old.plan, new.plan)))
    lines += plan[:MOST_SHOWN]
    if len(plan) > MOST_SHOWN:
        lines.append(f"… and {len(plan) - MOST_SHOWN} more lines of the plan")
    for name, then, today in compare_mappings(old.made_by, new.made_by):
        lines.append(f"{name} changed from {then or 'none'} to {today or 'none'}")
    return tuple(lines) or (UNRECORDED,)


def name_computed_keys(text: str) -> str:
    """Return a text with Catalyst's name of a computed key in plain words; states and fingerprints keep that name."""
    return re.sub(r"\bgroupingexpression(?=(_\d+)?\b)", "computed_key", text)


def compare_mappings(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, old and new value of each difference; a missing value is empty."""
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            yield name, old.get(name, ""), new.get(name, "")


def diff_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield removed and added lines, as `- line` and `+ line`; indentation is ignored."""
    compared = difflib.unified_diff([line.strip() for line in old], [line.strip() for line in new], lineterm="", n=0)
    for line in [*compared][2:]:  # the first two name files
        if line[0] in "-+":
            yield f"{line[0]} {line[1:]}"
