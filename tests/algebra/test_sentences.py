"""Sentences are rendered from data, here each kind of note; other programs find them in JSON, and their data too."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deltafold.algebra.results.notes import (
    KINDS,
    Branched,
    ChunksRan,
    EarlierEpoch,
    EpochRan,
    EpochTakenBack,
    FilesGone,
    FinishedBefore,
    ModeChosen,
    Note,
    NotIncremental,
    ReadAsItIs,
    Rebucketed,
    Redefined,
    RolledBack,
    SourcesUnchanged,
    ViewUnaffected,
)
from deltafold.algebra.results.report import EpochVerdict, Report, Verification
from deltafold.algebra.results.upkeep import TableUpkeep, Upkeep

RAN = Report(
    view="v",
    epoch=3,
    generation=2,
    verdict="applied",
    change_rows=1200,
    groups=1,
    jobs=2,
    commits=2,
    seconds=0.25,
    paths={"state_1": "reused", "view": "merge"},
    rounds={"loop_1": {"insert": [2, 1]}, "loop_2": {}},
    residuals={"loop_1": [0.5, 0.0125]},
    expected={"incremental": 2.0, "recompute": 1.0},
    notes=(EpochRan(),),
)
WORK = "1,200 changed rows, 1 group, 0.2 s, 2 Spark jobs, 2 Delta commits"
LOOPS = ", loop_1 2 rounds to a residual of 0.0125"
FIRST = f"epoch 3 applied, {WORK}, state_1 reused{LOOPS}"
SUBJECTS: list[tuple[Note, EpochVerdict, str]] = [
    (EpochRan(), "applied", FIRST),
    (ChunksRan(first=2, last=2, of=3), "applied", f"epoch 3 applied (chunk 2 of 3), {WORK}, state_1 reused{LOOPS}"),
    (
        ChunksRan(first=1, last=3, of=3),
        "rebuilt",
        f"epoch 3 rebuilt (chunks 1 to 3 of 3), {WORK}, state_1 reused{LOOPS}",
    ),
    (SourcesUnchanged(), "nothing to do", "nothing to do, no row changed since epoch 3"),
    (
        ViewUnaffected(within_tolerance=False),
        "nothing to do",
        f"no change: the source changes do not affect this view (still at epoch 3), 0.2 s, 2 Spark jobs{LOOPS}",
    ),
    (
        ViewUnaffected(within_tolerance=True),
        "nothing to do",
        "no change: the answer that is stored is still within its tolerance (still at epoch 3), 0.2 s, 2 Spark jobs"
        + LOOPS,
    ),
    (EarlierEpoch(), "nothing to do", "epoch 3 is at the requested versions"),
    (ReadAsItIs(missed={}), "nothing to do", "read as it is, at epoch 3"),
    (
        ReadAsItIs(missed={"t": 4, "low/d": 1}),
        "nothing to do",
        "read as it is, at epoch 3, not at version 4 of source t, version 1 of source low/d",
    ),
    (EpochTakenBack(), "taken back", "epoch 3 taken back, as it failed: the view is as before it"),
    (
        RolledBack(epoch=7, generation=1),
        "rolled back",
        "back to epoch 7 of generation 1, as epoch 3 of generation 2, 0.2 s",
    ),
    (
        Rebucketed(epoch=7, generation=1, buckets=16),
        "rebucketed",
        "epoch 7 of generation 1 in 16 buckets, as epoch 3 of generation 2, 0.2 s",
    ),
    (Branched(view="w", epoch=3), "branched", "branched from epoch 3 of view w"),
]
ADDITIONS: list[tuple[Note, str]] = [
    (
        FilesGone(versions={"t": 4, "d": 1}),
        "; files of version 4 of source t, version 1 of source d are gone: a refresh that reads them is refused until "
        "the view is rebuilt",
    ),
    (NotIncremental(node="Generate"), " (Generate cannot be maintained incrementally: see explain)"),
    (
        ModeChosen(mode="incremental", share=0.5),
        " (policy auto: estimated refresh 2.0 s, full recompute 1.0 s; incremental until the other takes less than 50 "
        "% of its time)",
    ),
    (ModeChosen(mode="recompute", share=0.5), " (policy auto: estimated refresh 2.0 s, full recompute 1.0 s)"),
    (Redefined(what="the query changed"), " (the query changed)"),
    (
        FinishedBefore(epoch=2, verdict="rebuilt", reused=("state_1", "state_2")),
        "; before it, epoch 2 was rebuilt, state_1, state_2 reused",
    ),
    (FinishedBefore(epoch=2, verdict="resumed"), "; before it, epoch 2 was resumed"),
]


@pytest.mark.parametrize(("note", "verdict", "words"), SUBJECTS, ids=lambda value: getattr(value, "kind", ""))
def test_what_a_report_is_about(note: Note, verdict: EpochVerdict, words: str) -> None:
    report = replace(RAN, verdict=verdict, notes=(note,))
    assert report.sentence == f"v: {words}"
    assert Report.from_json(report.to_json()) == report


@pytest.mark.parametrize(("note", "words"), ADDITIONS, ids=lambda value: getattr(value, "kind", ""))
def test_what_is_added_to_it(note: Note, words: str) -> None:
    report = replace(RAN, notes=(EpochRan(), note, Redefined(what="so")))
    assert report.sentence == f"v: {FIRST}{words} (so)"
    assert Report.from_json(report.to_json()) == report


def test_every_kind_of_note_is_here() -> None:
    assert {note.kind for note, *_ in [*SUBJECTS, *ADDITIONS]} == set(KINDS)


def test_views_below_are_named_if_they_changed() -> None:
    same = replace(RAN, view="low", verdict="nothing to do", notes=(SourcesUnchanged(),))
    report = replace(RAN, notes=(EarlierEpoch(),), below=(same, replace(same, view="mid", verdict="rebuilt")))
    assert report.sentence == "v: epoch 3 is at the requested versions; below it, mid epoch 3 rebuilt"


def test_reports_of_other_releases_keep_their_sentence() -> None:
    """Earlier ones have no notes, and later ones may have some that are unknown here."""
    stored = json.loads(RAN.to_json()) | {"sentence": "as it was"}
    for notes in ([], [{"kind": "ran"}, {"kind": "of a later release", "x": 1}]):
        assert Report.from_json(json.dumps(stored | {"notes": notes})).sentence == "as it was"
    del stored["notes"]
    assert Report.from_json(json.dumps(stored)).sentence == "as it was"


def test_verifications() -> None:
    equal = Verification(view="v", ok=True, missing=0, extra=0, rows=1, versions={}, sample=(), epoch=3)
    assert equal.sentence == "v: equals the batch query at epoch 3 (1 row)"
    wrong = replace(equal, missing=1, extra=2000, rows=7, sampled="1 % of the keys", sentence="")
    assert wrong.sentence == "v: differs: 1 row missing, 2,000 extra at epoch 3 in a sample of 1 % of the keys (7 rows)"
    near = replace(equal, residual=0.25, allowed=0.5, bound=0.125, unmatched=2, sentence="")
    assert near.sentence.removeprefix(equal.sentence) == (
        "; residual 0.25, at most 0.5 is allowed; distance from the fixpoint at most 0.125, 2 keys without a match"
    )


def test_upkeep() -> None:
    table = TableUpkeep(work="compacted", partitions=1, files=(9, 2), removed=3, freed=4200)
    done = Upkeep(
        view="v",
        retention_hours=1,
        tables={"view": table},
        generations=(1, 2),
        entries=4,
        keeps=(),
        seconds=1.25,
        finished="",
    )
    words = (
        "view compacted, 9 files to 2; 3 old files removed, 4.2 KB; generation 1, 2 removed; 4 journal entries removed"
    )
    assert done.sentence == f"v: {words}; 1.2 s"
    assert replace(done, grown=RAN, sentence="").sentence == f"{RAN.sentence}; {words}; 1.2 s"
