"""How large the inputs of a view seem to its refreshes: a parameter of each test, which its name shows.

`small`: inputs are read whole, as Deltafold reads small ones. `pruned`: only the ranges of keys that a change touches
are read, and Delta chooses the files. `large`: so, and nothing is broadcast. A test runs with `small`, by night over
tables in memory with `large`, too; with `large_by_day` it runs with `large` by day, and with all of them by night.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from deltafold.lake import delta_table
from tests.night import sampled
from tests.sandbox import READS, Sandbox

large_by_day = pytest.mark.parametrize("reads", sampled(READS, lambda name: name == "large"), indirect=True)
SMALL_BY_DAY = sampled(("small", "large"), lambda name: name == "small")


@contextmanager
def reading(reads: str) -> Iterator[str]:
    """Make refreshes within `as_asked` read so."""
    whole = delta_table.WHOLE_BYTES if reads == "small" else 0
    with mock.patch.object(Sandbox, "reads", reads), mock.patch.object(delta_table, "WHOLE_BYTES", whole):
        yield reads
