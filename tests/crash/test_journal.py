"""The journal and its lock, without a Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deltafold.algebra.errors import BusyError, StateError
from deltafold.algebra.results.report import Report
from deltafold.lake.durable import LocalRecords
from deltafold.store.history import Begun, Finished, Intent, Pin
from deltafold.store.journal import Journal
from tests.crash.points import Killed, watched

HOLD = """
import sys, time
from pathlib import Path
from deltafold.lake.durable import LocalRecords
with LocalRecords(Path(sys.argv[1])).lock("view v", "refreshed", 5):
    print("holding", flush=True)
    time.sleep(600)
"""


def intent(epoch: int, generation: int = 1) -> Intent:
    return Intent(
        view="v",
        generation=generation,
        epoch=epoch,
        fingerprint="f",
        buckets=1,
        sources={"orders": Pin(None, 3, "id")},
        tables={"state_1": epoch},
    )


def begun(epoch: int, generation: int = 1) -> Begun:
    return Begun(intent(epoch, generation))


def report(epoch: int) -> Report:
    return Report(view="v", epoch=epoch, generation=1, verdict="applied", sentence="", versions={"orders": (None, 3)})


def test_an_entry_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Protects from an epoch that is resumed with other versions than it began with."""
    journal = Journal(tmp_path)
    journal.begin(begun(1))
    assert journal.last() == begun(1)
    journal.finish(Finished(intent(1), report(1), {"state_1": 4}))
    assert journal.last() == Finished(intent(1), report(1), {"state_1": 4})


def test_the_newest_epoch_of_the_newest_generation_is_last(tmp_path: Path) -> None:
    """Protects from names that sort differently from numbers."""
    journal = Journal(tmp_path)
    for generation, epoch in [(9, 1), (10, 2), (10, 10), (10, 9), (2, 1000)]:
        journal.begin(begun(epoch, generation))
    last = journal.last()
    assert last is not None
    assert (last.intent.generation, last.intent.epoch) == (10, 10)


def test_a_write_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a half-written journal file: what a crash leaves before the rename is not looked at."""
    journal = Journal(tmp_path)
    journal.begin(begun(1))

    def stop(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(Killed):
        journal.finish(Finished(intent(1), report(1), {}))
    with pytest.raises(Killed):
        journal.begin(begun(2))
    monkeypatch.undo()
    assert journal.entries() == (begun(1),)
    journal.begin(begun(2))
    assert len(journal.entries()) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"intent": {"view": "v"}}', '{"report": null}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    """Protects from a traceback where a person needs to know which file to look at."""
    (tmp_path / "g00001-e000000001.json").write_text(text)
    with pytest.raises(StateError, match=r"g00001-e000000001\.json: it is damaged .*rebuild the view"):
        Journal(tmp_path).last()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """Protects from reading what only a later release understands."""
    journal = Journal(tmp_path)
    journal.begin(begun(1))
    [file] = tmp_path.glob("*.json")
    content = json.loads(file.read_text())
    content["intent"]["format"] = 99
    file.write_text(json.dumps(content))
    with pytest.raises(StateError, match="newer Deltafold"):
        journal.last()


def test_withdrawing_twice_is_withdrawing(tmp_path: Path) -> None:
    """Protects from a crash between a withdrawal and what follows."""
    journal = Journal(tmp_path)
    journal.begin(begun(1))
    with watched() as run:
        journal.remove(intent(1))
        journal.remove(intent(1))
    assert journal.last() is None
    assert len(run.passed) == 4


def test_old_entries_are_forgotten(tmp_path: Path) -> None:
    """Protects from a journal that grows for ever, and from one that forgets where the view stands."""
    journal = Journal(tmp_path)
    for epoch in range(1, 8):
        journal.finish(Finished(intent(epoch), report(epoch), {"state_1": epoch}))
    journal.begin(begun(8))
    assert journal.prune(3) == 5
    assert [entry.intent.epoch for entry in journal.entries()] == [6, 7, 8]
    assert journal.prune(3) == 0
    assert journal.prune(1) == 0, "an unfinished epoch alone does not name the answer that readers see"


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    """Protects from giving up while another refresh is about to end."""
    ended: list[float] = []

    def hold() -> None:
        with LocalRecords(tmp_path).lock("view v", "refreshed", 5):
            time.sleep(0.5)
            ended.append(time.monotonic())

    thread = threading.Thread(target=hold)
    thread.start()
    time.sleep(0.2)
    with LocalRecords(tmp_path).lock("view v", "refreshed", 5):
        assert ended
        assert ended[0] <= time.monotonic()
    thread.join()


def test_a_lock_names_its_holder_and_dies_with_it(tmp_path: Path) -> None:
    """Protects from a view that stays locked after its process was killed, and from a lock that says not by whom."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"holding\n"
    said = rf"^source s: it is being landed by process {holder.pid} since .*. Try again"
    with pytest.raises(BusyError, match=said), LocalRecords(tmp_path).lock("source s", "landed", 0.1):
        pass
    holder.kill()
    holder.wait()
    assert (tmp_path / ".owner").exists()
    with LocalRecords(tmp_path).lock("view v", "refreshed", 0.1):
        pass
    assert not (tmp_path / ".owner").exists()
