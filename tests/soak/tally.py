"""Count the outcomes of a soak, and list the allowed refusals: any other refusal is a fault."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

EXPECTED = (
    r"it is being .* by (another )?process",
    r"no finished epoch",  # nothing to maintain, to branch or to go back to
    r"was interrupted. Refresh it first",
    r"it is at epoch \d+ of generation \d+ already",
    r"view \w+: it exists already",
    r"its branches read its files",
    r"no source has a partition from",
    r"view \w+: the files of epoch \d+ of generation \d+ were removed",
)
GONE = (  # where a view went back, or was asked to, what was vacuumed meanwhile is needed again
    r"a data file is gone",
    r"can no longer be read",
    r"view \w+: it is at .* and has no epoch at",
)
MEETING = (r"(?i)concurrent",)  # a killed process's write that its Spark ends when the next has begun
VARIABLE = re.compile(r"/[^ ,:]+|\d[\d.:-]*")


@dataclass
class Tally:
    """Counts of outcomes; `faults`: those that must not happen."""

    operations: Counter[str] = field(default_factory=Counter[str])
    refusals: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    kills: int = 0
    refreshes: int = 0
    comparisons: int = 0
    incomparable: int = 0

    def refused(self, sentence: str, killed: bool, back: bool) -> bool:
        """Count a refusal; whether it may be. killed: whether a process was; back: whether the view went back."""
        self.refusals[VARIABLE.sub("…", sentence)] += 1
        allowed = (*EXPECTED, *(GONE if back else ()), *(MEETING if killed else ()))
        return any(re.search(pattern, sentence) for pattern in allowed)

    def lines(self) -> list[str]:
        """All of it, for people."""
        counts = {
            "operations": self.operations.total(),
            "killed": self.kills,
            "refreshes that ended": self.refreshes,
            "answers compared with the batch query": self.comparisons,
            "not compared, as a version was vacuumed": self.incomparable,
        }
        told = [f"  {name}: {count}" for name, count in sorted(self.operations.items())]
        told = [f"{name}: {count}" for name, count in counts.items()] + told
        told += [f"refused {count} times: {sentence}" for sentence, count in self.refusals.most_common()]
        return [*told, f"mismatches and other faults: {len(self.faults)}", *self.faults]


def gone(sentence: str) -> bool:
    """Whether a rebuild is what helps."""
    return any(re.search(pattern, sentence) for pattern in GONE)
