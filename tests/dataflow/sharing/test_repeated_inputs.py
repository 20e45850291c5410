"""The change of an input that several states read is computed once, and used under each of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from deltafold.lake.version_diff import Difference
from tests.night import every
from tests.sandbox import MemorySandbox, checked

# two states read the join: the distinct cities of a name, and the rows of each
QUERY = """select d.name, count(*) n, sum(t.v) s, max(t.v) m, count(distinct t.city) cities
from t join d on t.k = d.k group by d.name"""
TABLES = {
    "t": ("k int, city string, v int", [(k % 4, f"c{k % 3}", k) for k in range(12)]),
    "d": ("k int, name string", [(0, "a"), (1, "b"), (2, "b"), (3, None)]),
}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the changed files of each source are read."""
    found, frame = Counter[str](), Difference.frame

    def counting(self: Difference, *given: Any, **named: Any) -> Any:
        found[self.after.table.path.rsplit("/", 1)[-1]] += 1
        return frame(self, *given, **named)

    monkeypatch.setattr(Difference, "frame", counting)
    return found


@pytest.mark.parametrize("small", every(2, [True, False]))
def test_changed_files_are_read_once(sandbox: MemorySandbox, read: Counter[str], small: bool) -> None:
    """By one task, or by several whose rows are kept; the answer is the batch query's."""
    sandbox.tune(local_bytes=8 << 20 if small else 0)
    view = sandbox.sources(TABLES).view(QUERY)
    checked(view)
    for statement, sources in (
        ("insert into {t} values (1, 'c9', 50), (3, 'c1', 1), (7, 'c1', 1)", {"t"}),
        ("delete from {t} where v = 50 or k = 0", {"t"}),
        ("update {d} set name = 'c' where k = 2", {"d"}),
    ):
        sandbox.sql(statement)
        read.clear()
        checked(view)
        assert dict(read) == dict.fromkeys(sources, 1)
    sandbox.sql("insert into {t} values (2, 'c9', 7)")
    sandbox.sql("insert into {d} values (2, 'e'), (7, 'f')")
    read.clear()
    checked(view)
    assert dict(read) == {"t": 1, "d": 1}
