"""Define the results of refreshes, landings and verifications, and the description of a view, as data and JSON.

Other processes (an orchestrator's pages, scripts) read them without Spark. Journals store reports: a field may be added
and never renamed.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, cast

from deltafold.algebra.results.notes import Note, ReadAsItIs, read_notes
from deltafold.algebra.results.sentences import sentence_of, sentence_of_verification

VIEW_MARK = "view "  # before the name of a source that is a view, among `Report.versions`: no source's name has a space

EpochVerdict = Literal[
    "applied",
    "nothing to do",
    "recomputed",
    "rebuilt",
    "resumed",
    "rolled back",
    "rebucketed",
    "branched",
    "taken back",
]  # what a refresh, a rollback or a branch did; journals store it
APPLIED: Final = "applied"
NOTHING_TO_DO: Final = "nothing to do"
RECOMPUTED: Final = "recomputed"
REBUILT: Final = "rebuilt"
RESUMED: Final = "resumed"
ROLLED_BACK: Final = "rolled back"
REBUCKETED: Final = "rebucketed"
BRANCHED: Final = "branched"
TAKEN_BACK: Final = "taken back"


class Json:
    """Converts dataclasses to and from JSON text, and shows them in notebooks (html.py).

    The `repr` of one that has a `sentence` is that.
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {cast(Any, self).sentence}>"

    def _repr_html_(self) -> str:
        from deltafold.algebra.results import html  # which imports this module

        return html.render(self)

    def to_json(self) -> str:
        """Return one line of JSON with sorted keys."""
        return json.dumps(dataclasses.asdict(cast(Any, self)), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the inverse of `to_json`; fields unknown to this release are ignored."""
        stored: dict[str, Any] = json.loads(text)
        names = {field.name for field in dataclasses.fields(cast(Any, cls))}
        return cls(**{name: value for name, value in stored.items() if name in names})


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Json):
    """One refresh.

    view: its name; epoch, generation: where the view is now; verdict: what the epoch did; versions: Delta version
    before → after, by source (a view's name follows VIEW_MARK); change_rows: rows of the change that reached the
    states, or, if none did, the answer (weights not counted); groups: touched groups of all states; rows_read: records
    read by all of Spark's scans, including Delta's logs; rows_written: records written to tables; jobs: Spark's;
    commits: Delta's; seconds and phases: wall clock, of all and of each step; paths: how each table was written;
    finished: when, in UTC; estimates: the compiler's, in seconds, of each mode; expected: under policy auto, the
    expected seconds of each mode, from the compiler's estimates and earlier epochs; below: the reports of the views
    that this one reads, refreshed first; because: what changed in the query or its sources, line by line, if the view
    was rebuilt; lost: the source that lost what the last epoch read, in one sentence, if the view was rebuilt for it
    (on_lost); partitions: the values of the answer's partition key (see Description) among the rows that this epoch
    touched, or among the groups of a state that stores the answer; None if there is no such key, or too many were
    touched; rounds: of each loop, by phase (`retract`, `insert`, `levels`, `steps`), the number of rows that each round
    changed; `points`: of k-means, the number of old points that each step read again; residuals: of each loop to a
    tolerance, the change by each step in the loop's norm; the last is that of the answer; feeds: the sources whose
    change was read from their change data feed, since that has fewer bytes than their files; notes: what the refresh
    did, the subject first; sentence: rendered from them, and stored beside them for other programs; early releases
    stored it alone.
    """

    view: str
    epoch: int
    generation: int
    verdict: EpochVerdict
    sentence: str = ""
    versions: dict[str, tuple[int | None, int]] = field(default_factory=dict[str, tuple[int | None, int]])
    change_rows: int = 0
    groups: int = 0
    rows_read: int = 0
    rows_written: int = 0
    jobs: int = 0
    commits: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict[str, float])
    paths: dict[str, str] = field(default_factory=dict[str, str])
    finished: str = ""
    estimates: dict[str, float] = field(default_factory=dict[str, float])
    expected: dict[str, float] = field(default_factory=dict[str, float])
    below: tuple[Report, ...] = ()
    because: tuple[str, ...] = ()
    partitions: tuple[str, ...] | None = None
    rounds: dict[str, dict[str, list[int]]] = field(default_factory=dict[str, dict[str, list[int]]])
    residuals: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    lost: str = ""
    feeds: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        # JSON has no tuples, and dictionaries for reports and notes
        below = cast("tuple[Report | dict[str, Any], ...]", self.below)
        object.__setattr__(self, "below", tuple(b if isinstance(b, Report) else Report(**b) for b in below))
        object.__setattr__(self, "because", tuple(self.because))
        object.__setattr__(self, "feeds", tuple(self.feeds))
        object.__setattr__(self, "partitions", None if self.partitions is None else tuple(self.partitions))
        object.__setattr__(self, "versions", {name: (pair[0], pair[1]) for name, pair in self.versions.items()})
        stored = cast("tuple[Note | dict[str, Any], ...]", self.notes)
        object.__setattr__(self, "notes", read_notes(stored))
        if stored and not any(isinstance(note, dict) for note in stored):  # a sentence in JSON stays as it is
            object.__setattr__(self, "sentence", sentence_of(self))

    @property
    def has_effect(self) -> bool:
        """Whether the view is at another epoch than before."""
        return self.verdict != NOTHING_TO_DO

    @property
    def kept(self) -> ReadAsItIs | None:
        """How the view stands if a pipeline read it as it is; None if it was refreshed."""
        return next((note for note in self.notes if isinstance(note, ReadAsItIs)), None)

    @property
    def table_versions(self) -> dict[str, int]:
        """The version after the refresh of each source that is a table, not a view."""
        return {name: after for name, (_, after) in self.versions.items() if not name.startswith(VIEW_MARK)}


@dataclass(frozen=True, kw_only=True)
class Landing(Json):
    """One landing: the partitions that were loaded into a source's landed table, were unchanged, or were removed.

    quarantined: the number of rows in its quarantine afterwards, by partition; late: rows whose event time is closed,
    which are among those in quarantine; kept: landed rows of closed event time that are in no file any more;
    malformed: the records of a stream that this landing put in quarantine; stream: whether the source is a stream,
    which is landed as one partition; versions: of each landed partition of files, the version of the table that changed
    it last, as far as known; None of a stream, and from earlier releases.
    """

    source: str
    version: int
    landed: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    rows: int
    seconds: float
    quarantined: dict[str, int] = field(default_factory=dict[str, int])
    late: int = 0
    kept: int = 0
    malformed: int | None = None
    stream: bool = False
    versions: dict[str, int] | None = None

    @property
    def left_out(self) -> int:
        """The number of rows of the landed partitions, or of what arrived in a stream, that are in quarantine."""
        if self.malformed is not None:
            return self.malformed
        return sum(self.quarantined.get(partition, 0) for partition in self.landed)


@dataclass(frozen=True, kw_only=True, repr=False)
class Verification(Json):
    """The comparison of a view with its batch query at the versions of its last epoch, duplicates counted.

    epoch: the compared one; rows: the number of compared rows of the view; sample: some rows that differ; share: the
    share of keys compared; sampled: that in words, empty for all; unmatched: as in MeasuredPoint.
    residual: where the query has loops to a tolerance, the change of the stored answer by one batch step, of the loop
    closest to its limit; allowed: the greatest change that is allowed; bound: the most that the answer is away from the
    fixpoint, for a loop to an error.
    """

    view: str
    ok: bool
    missing: int
    extra: int
    rows: int
    versions: dict[str, int]
    sample: tuple[str, ...]
    sentence: str = ""
    share: float = 1.0
    residual: float | None = None
    bound: float | None = None
    allowed: float | None = None
    epoch: int = 0
    sampled: str = ""
    unmatched: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", self.sentence or sentence_of_verification(self))


@dataclass(frozen=True)
class MeasuredPoint:
    """The stored answer of a loop to a tolerance, measured by one batch step.

    residual: the change by the step; allowed: the greatest one allowed; shrinks: 1 less the contraction, None without
    one;
    unmatched: the keys that only one of the answer and the step has.
    """

    residual: float
    allowed: float
    shrinks: float | None
    unmatched: int

    @property
    def within(self) -> bool:
        """Whether the contract is kept, but for the rounding of sums."""
        return self.unmatched == 0 and self.residual <= self.allowed * (1 + 1e-6)

    @property
    def bound(self) -> float | None:
        """The most that the answer is away from the fixpoint: ‖x − x*‖ ≤ ρ / (1 − c)."""
        return None if self.shrinks is None else self.residual / self.shrinks


@dataclass(frozen=True)
class StateDescription:
    """A state in an orchestrator's graph."""

    name: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Description(Json):
    """A compiled view, for an orchestrator's graph.

    mode: that of its next epoch; partition_key: the answer's column that shows a partition column of a source, or '';
    lineage: the (source, column) pairs that each column is computed from; columns of unknown lineage are left out.
    """

    name: str
    fingerprint: str
    mode: str
    states: tuple[StateDescription, ...]
    columns: tuple[tuple[str, str], ...]
    explain: str
    sources: tuple[str, ...]
    partition_key: str = ""
    lineage: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict[str, tuple[tuple[str, str], ...]])

    def __post_init__(self) -> None:
        stored = cast("tuple[StateDescription | dict[str, Any], ...]", self.states)  # JSON has dictionaries
        states = (s if isinstance(s, StateDescription) else StateDescription(**s) for s in stored)
        object.__setattr__(
            self, "states", tuple(StateDescription(s.name, tuple(s.keys), tuple(s.columns)) for s in states)
        )
        object.__setattr__(self, "columns", tuple((str(name), str(type_)) for name, type_ in self.columns))
        object.__setattr__(self, "sources", tuple(self.sources))
        lineage = {
            name: tuple((source, column) for source, column in origins) for name, origins in self.lineage.items()
        }
        object.__setattr__(self, "lineage", lineage)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the inverse of `to_json`; earlier releases stored the mode as `verdict`."""
        stored: dict[str, Any] = json.loads(text)
        return super().from_json(json.dumps({"mode": stored.get("verdict")} | stored))
