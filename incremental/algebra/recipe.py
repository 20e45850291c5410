"""Algebra room: what a state is built from, as a person reads it. In: two recipes. Out: what differs, in words.

The fingerprint tells whether a state fits a query; the recipe tells what of it changed. It is kept beside the journal
for each fingerprint, and is bounded: a line that is too long is cut, and of many lines the first are kept.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from incremental.algebra.report import Json

LONGEST_LINE, MOST_LINES, MOST_NAMES = 240, 400, 4000
MOST_SHOWN = 20  # lines of the plan in a message


@dataclass(frozen=True)
class Recipe(Json):
    """A query with all that its answer depends on.

    plan: its operators, one a line, the answer first; columns: name and type of the answer's; sources: the type of each
    column that it reads, by source; settings: those of Spark that count; functions: a digest of each Python function;
    names: those of the plan's columns in the order of their making, which tables of states are named by;
    made_by: the releases of Deltafold and Spark.
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
        lines = [line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…" for line in self.plan]
        object.__setattr__(self, "plan", tuple(lines[:MOST_LINES]))
        object.__setattr__(self, "columns", tuple((name, type_) for name, type_ in self.columns))  # JSON has lists
        object.__setattr__(self, "names", tuple(self.names) if len(self.names) <= MOST_NAMES else ())


@dataclass(frozen=True)
class Current:
    """A view's query as it is now, beside the types of all columns of its sources."""

    recipe: Recipe
    types: Mapping[str, Mapping[str, str]]

    def since(self, kept: Recipe | None) -> tuple[str, ...]:
        """What changed since a state was built from another recipe, one thing a line."""
        if kept is None:
            return ("what it was is not known: the release that built the state did not note it",)
        return difference(kept, self.recipe, self.types)


def moved_columns(old: Recipe, now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What became of the source columns that a recipe reads; now: the types of all columns of the sources."""
    said: list[str] = []
    for source, columns in old.sources.items():
        for name, was in columns.items():
            if source not in now:
                said.append(f"source {source} is not declared any more, or its table is gone")
                break
            is_now = now[source].get(name)
            if is_now is None:
                said.append(f"column {name} of source {source} is gone: it was dropped or renamed")
            elif is_now != was:
                said.append(f"column {name} of source {source} was {was} and is {is_now}")
    return said


def difference(old: Recipe, new: Recipe, now: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """What of a query changed, one thing a line; now: the types of all columns of the sources."""
    said = moved_columns(old, now)
    for name, was, is_now in altered(old.settings, new.settings):
        said.append(f"the setting {name} was {was or 'not set'} and is {is_now or 'not set'}")
    for name, was, is_now in altered(old.functions, new.functions):
        which = "is another one" if was and is_now else "is new" if is_now else "is not used any more"
        said.append(f"the Python function {name} {which}")
    said += [
        f"the answer: {line}"
        for line in edited(*([" ".join(column) for column in each.columns] for each in (old, new)))
    ]
    plan = list(edited(old.plan, new.plan))
    said += plan[:MOST_SHOWN]
    if len(plan) > MOST_SHOWN:
        said.append(f"… and {len(plan) - MOST_SHOWN} more lines of the plan")
    for name, was, is_now in altered(old.made_by, new.made_by):
        said.append(f"it was built with {name} {was or 'none'}, and this is {is_now or 'none'}")
    return tuple(said) or ("the difference is in a part of the plan that is too long to be kept in words",)


def altered(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Name, old and new value of what differs; empty where there is none."""
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            yield name, old.get(name, ""), new.get(name, "")


def edited(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The lines that went and came, as `- line` and `+ line`; indentation alone is no difference."""
    compared = difflib.unified_diff([line.strip() for line in old], [line.strip() for line in new], lineterm="", n=0)
    for line in [*compared][2:]:  # the first two name files
        if line[0] in "-+":
            yield f"{line[0]} {line[1:]}"
