"""The values of a view's history and the files of its journal are the same, in both directions."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltafold.algebra.results.report import REBUCKETED, TAKEN_BACK, EpochVerdict, Report
from deltafold.store.history import (
    WHOLE,
    AnswerPin,
    Begun,
    Chunk,
    Copying,
    Event,
    Failed,
    Finished,
    History,
    Intent,
    Pin,
    Rest,
    number_of,
)
from deltafold.store.journal import Journal

SHAPES = json.loads((Path(__file__).parent / "shapes.json").read_text())
"""The files of each kind of epoch, as the release before wrote them."""
NUMBERS, TEXTS = st.integers(0, 9), st.sampled_from(["", "a", "b"])
PLACES = st.sampled_from(["g1/view", "g2/view"])
SOURCES = ["t", "d"]
TABLES = st.dictionaries(st.sampled_from(["state_1", "view"]), st.none() | NUMBERS, max_size=2)
BASES = st.dictionaries(TEXTS, NUMBERS, max_size=2)
PINS = st.builds(Pin, st.none() | NUMBERS, NUMBERS, TEXTS, commit=TEXTS) | st.builds(
    AnswerPin, st.none() | NUMBERS, NUMBERS, TEXTS, place=PLACES, place_before=PLACES, bases=BASES
)
STARTS = st.fixed_dictionaries(dict.fromkeys(SOURCES, st.none() | NUMBERS))
CHUNKS = st.integers(1, 3).flatmap(
    lambda of: st.builds(Chunk, st.integers(1, of), st.just(of), NUMBERS, whole=st.booleans(), starts=STARTS)
)
RESTS = st.builds(
    Rest, st.just(3), st.just(3), NUMBERS, starts=STARTS, ends=st.fixed_dictionaries(dict.fromkeys(SOURCES, NUMBERS))
)
INTENTS = st.builds(
    Intent,
    view=st.just("v"),
    generation=st.integers(1, 3),
    epoch=st.integers(1, 4),
    fingerprint=TEXTS,
    buckets=NUMBERS,
    sources=st.fixed_dictionaries(dict.fromkeys(SOURCES, PINS)),
    tables=TABLES,
    mode=st.sampled_from(["incremental", "recompute"]),
    constraints=st.lists(TEXTS, max_size=1),
    relied=st.lists(TEXTS, max_size=1),
    extent=st.just(WHOLE) | CHUNKS | RESTS,
    states=st.dictionaries(TEXTS, st.lists(TEXTS, max_size=2), max_size=1),
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
EVENTS = st.one_of(
    *(st.builds(kind, INTENTS) for kind in (Begun, Copying, Failed)), st.builds(Finished, INTENTS, REPORTS, TABLES)
)


def write(journal: Journal, event: Event) -> None:
    if isinstance(event, Finished):
        journal.finish(event)
    else:
        journal.begin(event)


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@given(st.lists(EVENTS, max_size=5, unique_by=number_of))
@settings(max_examples=25)
def test_a_history_is_what_was_written(events: list[Event]) -> None:
    """Events give files, which give the same events; a history ends at the last complete one."""
    events.sort(key=number_of)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder))
        for event in events:
            write(journal, event)
        assert journal.entries() == tuple(events)
        history = journal.history()
        assert history.numbers == tuple(map(number_of, events))
        complete = [number for number, event in enumerate(events) if isinstance(event, Finished) and event.complete]
        assert history.events == tuple(events[complete[-1] if complete else 0 :])
        assert history.complete == (events[complete[-1]] if complete else None)
        assert journal.history(history) == history


@pytest.mark.parametrize("shape", [name for name in SHAPES if "early" not in name])
def test_files_of_the_release_before_are_written_again_as_they_were(tmp_path: Path, shape: str) -> None:
    """Protects from an epoch that another release began and this one finishes otherwise."""
    event = read_shape(tmp_path, shape)
    [path] = tmp_path.glob("g*.json")
    stored = json.loads(path.read_text())
    write(Journal(tmp_path), event)
    written = json.loads(path.read_text())
    assert (written["intent"], written.get("after")) == (stored["intent"], stored.get("after"))
    assert stored.get("report", {}).items() <= written.get("report", {}).items()
    kind = {"begun": Begun, "chunk": Begun, "rest": Begun, "a": Begun, "copying": Copying, "failed": Failed}
    assert type(event) is kind.get(shape.split()[0].strip(","), Finished)


def test_what_an_epoch_reads(tmp_path: Path) -> None:
    """Protects from a vacuum of a version that a chunk still reads, and from rows read in another table of a view."""
    extents = {name: read_shape(tmp_path / name, name).intent.extent for name in SHAPES}
    assert extents["chunk of a first load"] == Chunk(1, 3, 1000, starts={"t": None})
    assert extents["chunk of a change"] == Chunk(2, 3, 1000, starts={"t": 4, "lows": 1})
    assert extents["rest of a change"] == Rest(3, 3, 1000, starts={"t": 4, "d": None}, ends={"t": 6, "d": 2})
    assert [extents["rest of a change"].list_passed(name) for name in ("t", "d")] == [(4, 6), (2,)]
    assert extents["finished chunk of an early release"] == Chunk(2, 3, 1000, whole=True, starts={"t": 4})
    rebuilt = read_shape(tmp_path / "rebuilt", "begun over a rebuilt view").intent.sources["lows"]
    assert rebuilt == AnswerPin(1, 5, "b", place="g2/state_1", place_before="g1/state_1", bases={"t": 8})
    taken_back = read_shape(tmp_path / "back", "taken back")
    assert isinstance(taken_back, Finished) and taken_back.taken_back and taken_back.report.verdict == TAKEN_BACK
    copied = read_shape(tmp_path / "copied", "finished copy")
    assert isinstance(copied, Finished) and copied.report.verdict == REBUCKETED


def read_shape(folder: Path, shape: str) -> Event:
    """Return the event in a file of the release before."""
    folder.mkdir(exist_ok=True)
    intent = SHAPES[shape]["intent"]
    path = folder / f"g{intent['generation']:05d}-e{intent['epoch']:09d}.json"
    path.write_text(json.dumps(SHAPES[shape], sort_keys=True))
    [event] = Journal(folder).entries()
    return event


def test_what_is_known_is_not_read_again(tmp_path: Path) -> None:
    """Protects from a load of a hundred chunks that reads a hundred files after each of them."""
    journal, history = Journal(tmp_path), History()
    for number in range(1, 6):
        intent = Intent(view="v", generation=1, epoch=number, fingerprint="", buckets=1, sources={})
        report = Report(view="v", epoch=number, generation=1, verdict="applied", sentence="")
        chunk = Chunk(number, 6, 1)
        journal.finish(Finished(dataclasses.replace(intent, extent=chunk), report, {}))
        for path in sorted(tmp_path.glob("*.json"))[:-2]:
            path.write_text("damaged")
        history = journal.history(history)
        assert [event.intent.extent for event in history.events] == [Chunk(n, 6, 1) for n in range(1, number + 1)]
