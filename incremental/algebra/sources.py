"""Algebra room: what a source is. In: nothing. Out: declarations of Delta tables and of folders of dropped files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Delta:
    """A Delta table, whoever writes it.

    path: its folder or URI; invariant: it never changes after a view's first epoch (a dimension table).
    """

    path: str
    invariant: bool = False


@dataclass(frozen=True)
class Files:
    """A folder of dropped files, landed into a Delta table of the warehouse first.

    path: a local folder, a relative one from the current folder; format: csv, json or parquet;
    schema: Spark DDL of all columns, the partition column included;
    partition_by: the partition column, whose folders are named `column=value`, or None for one folder of files;
    options: Spark's reader options (CSV has a header by default).
    """

    path: str
    format: Literal["csv", "json", "parquet"]
    schema: str
    partition_by: str | None = None
    invariant: bool = False
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        # Python and the JVM may have different current folders
        object.__setattr__(self, "path", str(Path(self.path).absolute()))


SourceDeclaration = Delta | Files
