"""Find the points where a refresh or a landing writes, in the code itself, and stop a run there.

A writing function is one whose text calls a method that writes. All of them in ROOMS are wrapped, so a new write is a
new point to be killed at, without listing it.
"""

from __future__ import annotations

import ast
import importlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltafold
from tests.spark.machine import PROJECT

LIBRARY = Path(deltafold.__file__ or "").parent
MEMORY = "tests.lake.memory.log"
ROOMS = (
    "lake.log.delta_log",
    "lake.delta_table",
    "lake.log.direct_commit",
    "lake.log.direct_merge",
    "lake.durable",
    "lake.sql_view",
    "store.journal",
    "store.answer_pointer",
    "landing.landing",
    "landing.input_folder",
    "landing.streams.arrivals",
    "landing.streams.position",
    "store.dependents",
    MEMORY,
)
EXEMPT = {
    "lake.durable:LocalRecords.lock",  # writes who holds the lock, which only the sentence of a BusyError reads
    "lake.durable:LocalRecords.put",  # each function that calls it is a point
    "lake.durable:LocalRecords.delete",  # likewise
    "lake.log.delta_log:latest_snapshot",  # `update` of a Delta log reads it
}
CALLS = {
    "save", "saveAsTable", "insertInto", "execute", "executeCompaction", "executeZOrderBy", "vacuum", "delete",
    "update", "restoreToVersion", "write_text", "write_bytes", "unlink", "rename", "erase", "rmtree", "copyfile",
    "copytree", "dump", "symlink_to", "hardlink_to", "link", "copyfileobj", "truncate", "commit",
    "writeFiles", "awaitTermination", "buildRowIndexSetsForFilesMatchingCondition",
}  # fmt: skip

Stop = int | tuple[str, int]
"""A point of a run: its number, or a moment and the how-manieth time that the run comes to it."""


class Killed(BaseException):
    """Replaces SIGKILL inside a process: nothing in the product may catch it."""


@dataclass(frozen=True)
class Point:
    """A moment of a run: before or after one writing function does its work on one thing."""

    side: str
    function: str
    what: str

    @property
    def written(self) -> bool:
        """Whether a table has just got another version."""
        return self.side == "after" and self.function.startswith(("DeltaTable.", "DirectCommit.finish", "MemoryLog."))

    @property
    def moment(self) -> str:
        """The point without the thing that is written."""
        return f"{self.side} {self.function}"

    def __str__(self) -> str:
        return f"{self.moment} {self.what}"


@dataclass
class Run:
    """The points that a run passed; at `stop` it calls `end`."""

    stop: Stop | None = None
    end: Callable[[], None] = lambda: None
    passed: list[Point] = field(default_factory=list[Point])

    def reach(self, point: Point) -> None:
        self.passed.append(point)
        times = sum(passed.moment == point.moment for passed in self.passed)
        if self.stop in (len(self.passed) - 1, (point.moment, times)):
            self.end()


def raise_killed() -> None:
    raise Killed


def kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def full_name(module: str) -> str:
    """The module of the library, or of the lake in memory."""
    return module if module == MEMORY else f"deltafold.{module}"


def writers(module: str) -> frozenset[str]:
    """The qualified names of a module's functions that call something that writes."""
    path = Path(*full_name(module).split(".")).with_suffix(".py")
    tree = ast.parse(((PROJECT if module == MEMORY else LIBRARY.parent) / path).read_text())
    return frozenset(name for name, function in functions(tree) if any(writes(node) for node in ast.walk(function)))


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from functions(node, prefix)


def writes(node: ast.AST) -> bool:
    """Whether a call writes: by the method's name, `path.replace(other)`, `open` to write, SQL that does."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "replace":
        return isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords
    if name in ("open", "fdopen"):
        modes = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        return any(mode[:1] in "wax" and mode for mode in modes)
    if name == "sql":
        return any(word in ast.unparse(arg) for arg in node.args for word in ("CREATE ", "DROP ", "OPTIMIZE "))
    if name == "put":
        return isinstance(node.func, ast.Attribute) and "records" in ast.unparse(node.func.value)
    return name == "replace_file" or (name in CALLS and isinstance(node.func, ast.Attribute))


@contextmanager
def watched(stop: Stop | None = None, end: Callable[[], None] = raise_killed) -> Iterator[Run]:
    """Every writing function of ROOMS reports to the run; at `stop` it ends."""
    run, undo = Run(stop, end), list[Callable[[], None]]()
    try:
        for module in ROOMS:
            for name in sorted(writers(module)):
                if f"{module}:{name}" not in EXEMPT:
                    undo.append(wrap(importlib.import_module(full_name(module)), name, run))
        yield run
    finally:
        for restore in undo:
            restore()


def wrap(module: Any, name: str, run: Run) -> Callable[[], None]:
    """Wrap a method; returns what puts it back. A function would escape where it is imported by name."""
    *owners, last = name.split(".")
    assert owners, f"{name} writes: make it a method of what it writes to"
    owner = module
    for part in owners:
        owner = getattr(owner, part)
    original = getattr(owner, last)

    def reporting(*args: Any, **kwargs: Any) -> Any:
        what = subject(args)
        run.reach(Point("before", name, what))
        result = original(*args, **kwargs)
        run.reach(Point("after", name, what))
        return result

    setattr(owner, last, reporting)
    return lambda: setattr(owner, last, original)


def subject(args: tuple[Any, ...]) -> str:
    """What a write is about: the table's or the file's name."""
    for arg in args:
        if isinstance(arg, Path):
            return arg.name
        if hasattr(arg, "path"):
            return "/".join(str(arg.path).split("/")[-2:])
        if isinstance(arg, str):
            return arg
        if hasattr(arg, "epoch"):
            return f"epoch {arg.epoch}"
    return ""
