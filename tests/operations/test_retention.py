"""Which versions must stay, from journals alone: no Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deltafold.algebra.results.address import Address
from deltafold.algebra.results.report import Report
from deltafold.operations.retention import Need, needs_of_sources, needs_of_view, superseded_since
from deltafold.store.answer_pointer import PointerFile
from deltafold.store.dependents import Reader, Readers
from deltafold.store.history import AnswerPin, Begun, Chunk, Finished, Intent, Pin
from deltafold.store.journal import Journal

DONE = Report(view="v", epoch=1, generation=1, verdict="applied", sentence="")


def epoch(folder: Path, pins: dict[str, Pin], number: int = 1, done: bool = True, **tables: int) -> None:
    intent = Intent(view=folder.name, generation=1, epoch=number, fingerprint="f", buckets=1, sources=pins)
    journal = Journal(folder / "journal")
    if done:
        journal.finish(Finished(intent, DONE, dict(tables)))
    else:
        journal.begin(Begun(intent))


def answer(before: int, after: int, identity: str, place: str, place_before: str = "", **bases: int) -> Pin:
    return AnswerPin(before, after, identity, place=place, place_before=place_before or place, bases=bases)


def test_the_last_epochs_of_all_views_and_of_those_above_are_needed(tmp_path: Path) -> None:
    """Three warehouses: low, mid above it, top above mid; and a second view beside low, with an unfinished epoch."""
    low, mid, top = (tmp_path / name / "views" / name for name in ("low", "mid", "top"))
    beside = low.with_name("beside")
    epoch(low, {"t": Pin(3, 9, "a")}, state_1=7)
    epoch(beside, {"t": Pin(None, 4, "a")}, view=1)
    epoch(beside, {"t": Pin(4, 6, "a")}, number=2, done=False)
    epoch(mid, {"lows": answer(1, 5, "b", "g1/state_1", t=8)}, view=2)
    epoch(mid, {"lows": answer(5, 6, "b", "g2/state_1", "g1/state_1", t=9)}, number=2, done=False)
    epoch(top, {"mids": AnswerPin(1, 2, "c", place="g1/view", place_before="g1/view", bases={"lows/t": 2})}, view=1)
    Readers(low).add(Reader(str(mid), "lows"))
    Readers(low).add(Reader(str(tmp_path / "gone"), "lows"))
    Readers(mid).add(Reader(str(top), "mids"))
    needed = {need.version: need.who for need in needs_of_sources(low.parent) if need.table == "t"}
    assert needed == {9: "view mid", 8: "view mid", 6: "view beside", 4: "view beside", 2: "view top"}
    assert set(needs_of_view(low)) == {
        Need("g1/state_1", 7, "its last epoch"),
        Need("g1/state_1", 5, "view mid"),
        Need("g2/state_1", 6, "view mid"),
    }


def test_a_branch_needs_what_it_was_made_of_until_it_is_dropped(tmp_path: Path) -> None:
    view, dev = tmp_path / "views" / "v", tmp_path / "other" / "views" / "dev"
    epoch(view, {"t": Pin(3, 9, "a")}, state_1=7)
    Readers(view).add(Reader(str(dev), "", {"g1/state_1": 5}))
    assert {need.version for need in needs_of_view(view)} == {7}
    epoch(dev, {"t": Pin(None, 6, "a")}, state_1=0)
    (dev / "g1").mkdir()
    assert Readers(view).branches() == ("dev",)
    assert {need.version for need in needs_of_view(view)} == {7, 5}
    assert {need.version for need in needs_of_sources(view.parent)} == {9, 6}
    (dev / "g1").rmdir()
    assert Readers(view).branches() == ()
    assert {need.version for need in needs_of_view(view)} == {7}


def test_a_generation_is_superseded_when_readers_have_the_next(tmp_path: Path) -> None:
    """Protects from removing a table that readers have only just left: a rebuild in parts, or a crash, takes long."""
    journal = Journal(tmp_path / "journal")
    intent = Intent(view="v", generation=1, epoch=1, fingerprint="f", buckets=1, sources={})
    journal.finish(Finished(intent, replace(DONE, finished="2026-01-01"), {"view": 0}))
    for number, day in ((1, "2026-01-02"), (2, "2026-01-09")):
        assert superseded_since(tmp_path, 1) is None
        part = replace(intent, generation=2, epoch=number, extent=Chunk(number, 2, 1))
        journal.finish(Finished(part, replace(DONE, finished=day), {"view": number}))
    assert superseded_since(tmp_path, 1) == "2026-01-09"
    address = Address(
        view="v",
        path=str(tmp_path / "g2" / "view"),
        table="g2/view",
        version=2,
        generation=2,
        epoch=2,
        columns=(),
        finished="2026-01-09",
        since="2026-01-12",
    )
    PointerFile(tmp_path).write(address)
    assert superseded_since(tmp_path, 1) == "2026-01-12"
    journal.finish(Finished(replace(intent, generation=3), replace(DONE, finished="2026-01-15"), {"view": 0}))
    assert (superseded_since(tmp_path, 1), superseded_since(tmp_path, 2)) == ("2026-01-12", "2026-01-15")
    assert superseded_since(tmp_path, 3) is None


def test_who_reads_a_view(tmp_path: Path) -> None:
    """Asked for before it is dropped: a reader that is gone, or reads another table by now, asks for nothing."""
    low, mid, other, new = (tmp_path / "views" / name for name in ("low", "mid", "other", "new"))
    for reader in (mid, other, new, tmp_path / "gone"):
        Readers(low).add(Reader(str(reader), "lows"))
    Readers(low).add(Reader(str(other), "", {"g1/view": 1}))  # a branch is no reader in this sense
    epoch(mid, {"lows": answer(1, 5, "mine", "g1/view")}, view=2)
    epoch(other, {"lows": answer(1, 5, "another", "g1/view")}, view=2)
    new.mkdir()
    assert Readers(low).views(lambda pin: pin.identity == "mine") == ("mid", "new")
    epoch(mid, {"t": Pin(1, 5, "mine")}, number=2, view=2)
    assert Readers(low).views(lambda pin: pin.identity == "mine") == ("new",)
