"""The position of a stream: what was taken and not landed is found again, whoever left it."""

from __future__ import annotations

from pathlib import Path

from deltafold.landing.streams.position import Reading, list_readings


def test_a_landing_is_sealed_by_a_record(tmp_path: Path) -> None:
    """Protects from reading the stream on into a table whose rows may be landed already."""
    reading = Reading(tmp_path, 0)
    assert (reading.read_note(), list_readings(tmp_path)) == (None, [])
    reading.begin({"path": "in"})
    assert reading.arrivals(1) is None
    reading.seal(1)
    assert reading.arrivals(1) == reading.incoming(1)
    reading.note(1, {"path": "in"})
    assert (reading.arrivals(1), reading.arrivals(2)) == (None, None)
    assert list_readings(tmp_path) == [reading]


def test_a_landing_that_an_earlier_release_left(tmp_path: Path) -> None:
    """Protects from losing what it took: it moved the table instead, and wrote only two of the values."""
    reading = Reading(tmp_path, 0)
    reading.begin({"path": "in"})
    (tmp_path / "stream-0" / "position.json").write_text('{"landing": 3, "stream": {"path": "in"}}')
    (tmp_path / "stream-0" / "arrivals-4").mkdir()
    assert reading.arrivals(4) == reading.path / "arrivals-4"
    reading.clear(4)
    assert reading.arrivals(4) is None
