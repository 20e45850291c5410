"""The values of a view's history and the files of its journal say the same, in both directions."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from deltafold.algebra.results.report import TAKEN_BACK, EpochVerdict, Report
from deltafold.store.history import Copying, Failed, Finished, History, entry_of, event_of, number_of, read_history
from deltafold.store.journal import Chunk, Entry, Intent, Journal, Pin

NUMBERS, TEXTS = st.integers(0, 9), st.sampled_from(["", "a", "b"])
TABLES = st.dictionaries(st.sampled_from(["state_1", "view"]), st.none() | NUMBERS, max_size=2)
PINS = st.builds(
    Pin,
    st.none() | NUMBERS,
    NUMBERS,
    TEXTS,
    place=st.none() | st.just("g1/view"),
    left=st.none() | st.just("g1/view"),
    bases=st.dictionaries(TEXTS, NUMBERS, max_size=2),
    start=st.none() | NUMBERS,
    commit=TEXTS,
    via=st.none() | NUMBERS,
)
CHUNKS = st.integers(1, 3).flatmap(
    lambda of: st.builds(Chunk, st.integers(1, of), st.just(of), NUMBERS, whole=st.booleans())
)
INTENTS = st.builds(
    Intent,
    view=st.just("v"),
    generation=st.integers(1, 3),
    epoch=st.integers(1, 4),
    fingerprint=TEXTS,
    buckets=NUMBERS,
    sources=st.dictionaries(st.sampled_from(["t", "d"]), PINS, max_size=2),
    tables=TABLES,
    mode=st.sampled_from(["incremental", "recompute"]),
    constraints=st.lists(TEXTS, max_size=1),
    relied=st.lists(TEXTS, max_size=1),
    part=st.none() | CHUNKS,
    states=st.dictionaries(TEXTS, st.lists(TEXTS, max_size=2), max_size=1),
    rearranges=st.booleans(),
    lost=TEXTS,
    losses=NUMBERS,
)
REPORTS = st.builds(
    Report,
    view=st.just("v"),
    epoch=st.integers(1, 4),
    generation=st.integers(1, 3),
    verdict=st.sampled_from(get_args(EpochVerdict)),
    sentence=TEXTS,
    partitions=st.none() | st.just(("a",)),
    because=st.just(()) | st.just(("the query",)),
)
BEGUN = st.builds(Entry, INTENTS, st.none())
FAILED = BEGUN.map(
    lambda entry: dataclasses.replace(
        entry, intent=dataclasses.replace(entry.intent, takes_back=True, rearranges=False)
    )
)
FINISHED = st.builds(Entry, INTENTS, REPORTS, TABLES)
ENTRIES = BEGUN | FAILED | FINISHED
"""Every shape that the code can write: a copy is never taken back, and a finished epoch has nothing to restore."""


def write(journal: Journal, entry: Entry) -> None:
    if entry.report is None:
        journal.begin(entry.intent)
    else:
        journal.finish(entry.intent, entry.report, entry.after)


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@given(st.lists(ENTRIES, max_size=5, unique_by=lambda entry: (entry.intent.generation, entry.intent.epoch)))
@settings(max_examples=25)
def test_a_history_says_what_the_files_say(entries: list[Entry]) -> None:
    """Files give a history, which gives the same files; and events give files, which give the same events."""
    entries.sort(key=lambda entry: (entry.intent.generation, entry.intent.epoch))
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        journal, copy = Journal(Path(first)), Journal(Path(second))
        for entry in entries:
            write(journal, entry)
        events = tuple(event_of(journal.entry(*number)) for number in journal.numbers())
        assert events == tuple(map(event_of, entries))
        for event in events:
            write(copy, entry_of(event))
        assert texts(Path(first)) == texts(Path(second))
        history = read_history(journal)
        assert history.events == events[len(events) - len(history.events) :]
        assert history.numbers == tuple(map(number_of, events))
        complete = [event for event in events if isinstance(event, Finished) and event.complete]
        assert [e for e in history.events if isinstance(e, Finished) and e.complete] == complete[-1:]
        assert history.events[:1] == (tuple(complete[-1:]) or events[:1])
        assert read_history(journal, history) == history


@given(ENTRIES)
@settings(max_examples=25)
def test_an_event_has_one_meaning(entry: Entry) -> None:
    """The nullable fields of an entry are one of four events, and the event says all of them."""
    event, intent = event_of(entry), entry.intent
    assert entry_of(event) == entry
    assert isinstance(event, Finished) == (entry.report is not None)
    assert isinstance(event, Failed) == intent.takes_back
    assert isinstance(event, Copying) == (entry.report is None and intent.rearranges)
    if isinstance(event, Finished):
        assert event.complete == entry.complete
        assert event.taken_back == (entry.report is not None and entry.report.verdict == TAKEN_BACK)


def test_what_is_known_is_not_read_again(tmp_path: Path) -> None:
    """Protects from a load of a hundred chunks that reads a hundred files after each of them."""
    journal, history = Journal(tmp_path), History()
    for number in range(1, 6):
        intent = Intent(view="v", generation=1, epoch=number, fingerprint="", buckets=1, sources={})
        report = Report(view="v", epoch=number, generation=1, verdict="applied", sentence="")
        chunk = Chunk(number, 6, 1)
        journal.finish(dataclasses.replace(intent, part=chunk), report, {})
        for path in sorted(tmp_path.glob("*.json"))[:-2]:
            path.write_text("damaged")
        history = read_history(journal, history)
        assert [event.intent.part for event in history.events] == [Chunk(n, 6, 1) for n in range(1, number + 1)]
