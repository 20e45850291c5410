"""List the crashes that are tested without --long: every kind of view, every stage, one side of every write."""

from __future__ import annotations

from tests.crash.points import Stop

Crash = tuple[str, str, Stop]
"""The kind of the view, the stage, and where it is stopped."""

IN_MEMORY: tuple[Crash, ...] = (
    ("one state in place, merged", "late resume", ("before Journal._write", 1)),
    ("two nested states", "rebuild", ("after MemoryLog.advance", 1)),
    ("state and view table", "resume", ("before MemoryLog.advance", 1)),
    ("bag", "rollback", ("before MemoryLog.advance", 1)),
    ("bag, merged", "change", ("after MemoryLog.advance", 1)),
    ("recursion, merged", "change", ("before MemoryLog.advance", 1)),
    ("join and window", "change in parts", ("after Journal._write", 2)),  # between two parts
    ("two nested states", "healing", ("after MemoryLog.advance", 1)),
    ("view over a view", "healing", ("before Journal._write", 3)),  # the view below is healed, the one above is not
    ("join and window", "healing in parts", ("after Journal._write", 2)),
    ("view over a view", "healing of an interrupted view", ("after Journal._write", 1)),
    ("recursion", "resume", ("before MemoryLog.advance", 1)),  # its table is written, the state above is not
    ("clusters", "first load", ("after MemoryLog.advance", 1)),  # the log of its points is written, its table is not
    ("recomputed", "resume", ("after Journal._write", 1)),
    ("by definition", "change that cancels out", ("after Journal.remove", 1)),
    ("view over a view", "first load", ("before Readers.add", 1)),
    ("view over a view", "change", 9),  # the view below has ended its epoch, the one above has not
    ("view over a view", "branch", ("after LocalRecords.move_to", 1)),
    ("bag", "first load", ("before PointerFile.write", 1)),
    ("plain", "change", ("after MemoryLog.advance", 2)),  # the plain table is written, readers are not pointed to it
    ("one state in place", "landing", ("before MemoryLog.advance", 1)),
    ("one state in place", "maintain", ("before Journal.prune", 1)),
)
ON_DELTA: tuple[Crash, ...] = (
    ("state and view table, merged by Delta", "change", ("before DeltaTable.merge", 1)),
    ("one state in place, merged", "change", ("before DirectMerge.write_vectors", 1)),
    ("two nested states", "change", ("after DirectCommit.write_files", 2)),
    ("two nested states", "change", ("after DirectCommit.finish", 1)),
    ("two nested states", "resume", ("after DeltaTable._write", 1)),
    ("plain", "first load", ("before DeltaTable.publish", 1)),
    ("published", "rebuild", ("after SqlView.write", 1)),
    ("published", "drop", ("after SqlView.drop", 1)),
)
BY_SIGNAL: tuple[Crash, ...] = (("one state in place, merged", "change", ("after DeltaTable.merge", 1)),)
