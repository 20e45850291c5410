"""A change larger than a chunk is split into chunks, each an epoch; the end equals the one-shot result."""

from __future__ import annotations

import json

import pytest

from deltafold.algebra.errors import UsageError
from deltafold.algebra.results.report import Report
from deltafold.api import Delta
from deltafold.refresh import incremental_refresh
from deltafold.refresh.reporting import merge_chunk_reports
from deltafold.store.history import Chunk, Finished, Intent
from tests.night import every, night
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, checked, confirm, rows

JOINED = "select d.name, count(*) n, sum(t.v) s, max(t.v) hi from t join d on t.k = d.k group by d.name"
ANTI_AND_WINDOW = """select k, v, rank() over (partition by k order by v) r from t
                     where not exists (select 1 from d where d.k = t.k and d.name = 'n1')"""


def filled(sandbox: Sandbox) -> None:
    """Facts in six files, dimensions in two."""
    for i in range(6):
        more = sandbox.source if i == 0 else sandbox.insert
        more("t", "k int, v int", [(k, 10 * i + k) for k in range(6)])
    for i in range(2):
        more = sandbox.source if i == 0 else sandbox.insert
        more("d", "k int, name string", [(k, f"n{i}") for k in range(3 * i, 3 * i + 3)])


def size(sandbox: Sandbox) -> int:
    """The bytes of three files of facts, as they were filled."""
    return 3 * max(file.bytes for file in sandbox.table("t").files(5).values()) + 1


def fail_in_second(patch: pytest.MonkeyPatch) -> None:
    """Let the second epoch from now on fail."""
    run, failing = incremental_refresh.Incremental.run, iter([False, True])
    patch.setattr(incremental_refresh.Incremental, "run", lambda *given: 1 / 0 if next(failing) else run(*given))


@pytest.mark.parametrize("query", every(2, [JOINED, ANTI_AND_WINDOW]))
def test_chunks_end_where_one_epoch_does(sandbox: MemorySandbox, query: str) -> None:
    """First load, then a change that also deletes, updates and compacts, on both sources."""
    refresh_in_chunks(sandbox, query)


@night
def test_chunks_on_delta(delta: DeltaSandbox) -> None:
    """Deletion vectors, compactions and sizes as Delta has them."""
    refresh_in_chunks(delta, JOINED)


def refresh_in_chunks(sandbox: Sandbox, query: str) -> None:
    filled(sandbox)
    view, steps = sandbox.view(query), list[str]()
    report = view.refresh(chunk=size(sandbox), progress=steps.append)
    confirm(view)
    assert report.epoch == len(view.history()) > 1
    assert f"(chunks 1 to {report.epoch} of {report.epoch})" in report.sentence
    assert [step for step in steps if step.startswith(f"chunk 2 of {report.epoch}, about ")]
    sandbox.sql("delete from {t} where v % 10 = 3 or v < 3")
    sandbox.sql("update {t} set k = k + 1 where v % 7 = 1")
    sandbox.sql("delete from {d} where k = 4")
    sandbox.sql("insert into {d} values (5, 'n1'), (9, 'n9')")
    sandbox.sql("optimize {d}")
    assert checked(view, chunk=size(sandbox)).epoch > report.epoch + 1
    sandbox.sql("insert into {t} values (2, 2)")
    assert "chunk" not in checked(view, chunk=size(sandbox)).sentence
    assert view.refresh(chunk=size(sandbox)).verdict == "nothing to do"


def test_feeds_of_all_chunks_are_reported() -> None:
    """Protects from a report of the last chunk alone."""
    feeds = (("t",), ("d", "t"))
    chunks_of_two = [
        Finished(
            Intent(view="v", generation=1, epoch=n, fingerprint="f", buckets=1, sources={}, extent=Chunk(n, 2, 9)),
            Report(view="v", epoch=n, generation=1, verdict="applied", feeds=feeds[n - 1]),
            {},
        )
        for n in (1, 2)
    ]
    assert merge_chunk_reports(chunks_of_two, chunks_of_two[-1].report).feeds == ("t", "d")


def test_the_report_of_a_change_in_chunks(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """It told of the last chunk alone: of another's partitions, or that nothing was to do."""

    def put(**values: int) -> None:
        for day, value in values.items():
            frame = sandbox.spark.createDataFrame([(day, value)], "day string, v int")
            sandbox.write("t", frame, partition="day")

    put(d1=1, d2=2, d3=3, d4=40)
    sandbox.declare("t")
    view = sandbox.view("select day, v from t where v < 10")
    first = checked(view, chunk=1)
    assert (first.versions, first.change_rows, first.partitions) == ({"t": (None, 3)}, 3, ("d1", "d2", "d3"))
    for _ in range(3):  # files go by names that nobody knows
        put(d1=1, d2=2, d3=50)
        report = checked(view, chunk=1)
        assert (report.verdict, report.change_rows, report.partitions) == ("applied", 2, ("d1", "d2")), report.sentence
    put(d1=1, d2=2, d3=5)
    with monkeypatch.context() as failing, pytest.raises(ZeroDivisionError):
        fail_in_second(failing)
        view.refresh(chunk=1)
    put(d4=4)
    after = checked(view)
    assert (after.change_rows, after.partitions) == (1, ("d1", "d2", "d3", "d4")), after.sentence
    assert view.refresh(chunk=1).partitions == ()


@night
def test_what_a_compaction_wrote_is_changed_again(sandbox: MemorySandbox) -> None:
    """Commits pass over the compaction: its file leaves and never came, so a set of files would hold rows twice."""
    filled(sandbox)
    view = sandbox.view("select k, count(*) n, max(v) hi from t group by k")
    checked(view)
    for i in range(4):
        sandbox.insert("t", "k int, v int", [(k, 100 + 10 * i + k) for k in range(6)])
    sandbox.sql("optimize {t}")
    sandbox.sql("delete from {t} where v in (123, 134, 55)")
    sandbox.sql("update {t} set v = 1 where v = 135")
    assert "chunk" in checked(view, chunk=size(sandbox)).sentence


@night
def test_few_rows_of_many_files_are_no_large_change(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were as many chunks as files. Chunks that an earlier release began so are ended so."""
    filled(sandbox)
    view = sandbox.view(JOINED)
    checked(view)
    sandbox.sql("delete from {t} where v % 10 = 3")
    assert "chunk" not in checked(view, chunk=size(sandbox)).sentence
    sandbox.sql("delete from {t} where v % 10 = 4")
    with monkeypatch.context() as earlier:
        earlier.setattr(Chunk.__init__, "__defaults__", (True, *(Chunk.__init__.__defaults__ or ())[1:]))
        fail_in_second(earlier)
        with pytest.raises(ZeroDivisionError):
            view.refresh(chunk=size(sandbox))
    for path in (sandbox.folder / "warehouse" / "views" / "v" / "journal").glob("g*.json"):
        written = json.loads(path.read_text())
        if written["intent"]["part"]:
            assert written["intent"]["part"].pop("whole") and written["intent"]["part"]["of"] > 2
            path.write_text(json.dumps(written))
    assert "(chunks 1 to 6 of 6)" in checked(view).sentence


def test_a_failure_between_and_within_chunks(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers keep the last complete answer; the next refresh goes on, asked for chunks or not."""
    filled(sandbox)
    view = sandbox.view(JOINED)
    checked(view)
    complete = rows(view)
    sandbox.sql("update {t} set v = v + 100")
    with monkeypatch.context() as failing, pytest.raises(ZeroDivisionError):
        fail_in_second(failing)
        view.refresh(chunk=size(sandbox))
    assert rows(view) == complete and view.verify().ok
    sandbox.sql("insert into {t} values (0, 7)")
    report = view.refresh()
    confirm(view)
    assert any("(chunk " in known.sentence for known in view.history()) and "(chunk" not in report.sentence


def test_chunks_of_no_bytes(sandbox: MemorySandbox) -> None:
    """An endless number of empty epochs is refused before anything is begun."""
    sandbox.source("t", "k int", [(1,)])
    view = sandbox.view("select k from t")
    for work in (view.refresh, view.rebuild):
        with pytest.raises(UsageError, match=r"chunk: 0 is not valid. Give a number of bytes, 1 or more"):
            work(chunk=0)
    assert not view.history()


def test_rebuilding_in_chunks(sandbox: MemorySandbox) -> None:
    """The old generation stays readable until the last chunk of the new one."""
    filled(sandbox)
    view = sandbox.view(JOINED)
    checked(view)
    report = view.rebuild(chunk=size(sandbox))
    confirm(view)
    assert report.generation == 2 and "(chunk" in report.sentence


@night
def test_sources_of_the_same_size_keep_their_order(sandbox: MemorySandbox) -> None:
    """The journal sorts names, a query does not: one file was taken in twice, another never."""
    for i in range(2):
        sandbox.insert("t", "k int, v int", [(k, 10 * i + k) for k in range(6)])
    for name in ("b", "a"):
        sandbox.warehouse.source(name, Delta(sandbox.path("t")))
    view = sandbox.view("select b.k, b.v, sum(a.v) s from b join a on a.k = b.k group by b.k, b.v")
    assert view.refresh(chunk=1).epoch == 4
    confirm(view)


def test_a_first_chunk_without_effect(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch before it stays the one that readers see, also where the next chunk fails."""
    filled(sandbox)
    view = sandbox.view("select k, sum(v) s from t where v < 1000 group by k")
    checked(view)
    complete = rows(view)
    for i in range(3):
        sandbox.insert("t", "k int, v int", [(1, 2000 + i)])
    sandbox.sql("delete from {t} where v < 6")
    with monkeypatch.context() as failing, pytest.raises(ZeroDivisionError):
        fail_in_second(failing)
        view.refresh(chunk=1)
    assert rows(view) == complete and view.verify().ok and view.status().epoch == 1
    checked(view)
