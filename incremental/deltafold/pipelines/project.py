"""Define a project: datasets that read each other and tables of the catalog, whichever files declare them.

A loader reads the files of one tool (Spark Declarative Pipelines, dbt) or a folder of SQL, and returns a `Project`. It
gives

- names: of every dataset as its tool spells them, with one to three parts; `catalog` and `database` complete shorter
  ones. No two datasets have the same complete name; case does not distinguish them (Spark's rule).
- queries: as SQL text over these names, or as a function of a `Reader`. What a query reads is found in the query
  (`graph`), so a loader declares no dependency, and lists datasets in any order. A name denotes a dataset of the
  project, else a table of the catalog.
- kept: False for what its tool does not store (temporary views, dbt's `view` and `ephemeral` models), which is inlined
  into its readers.
- origins: file and line of each declaration, which errors cite.
- refusals: everything in the files that has no meaning here, of a dataset or of the project. They are collected, not
  raised, so that a user sees all of them at once. Those of the project stop it; a refused dataset stops what reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from deltafold.pipelines.selection import Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from deltafold.algebra.sources import SourceDeclaration

QueryFunction = Callable[["Reader"], "DataFrame"]
RefreshPolicy = Literal["auto", "incremental", "incremental_strict", "full"]


class Reader(Protocol):
    """Reads datasets, streaming tables and tables of the catalog by name, for a query function."""

    def table(self, name: str) -> DataFrame:
        """Return the rows."""
        ...

    def stream(self, name: str, options: Mapping[str, Any]) -> DataFrame:
        """Return the rows as a stream that is read with Spark's options; for a flow alone."""
        ...

    def events(self, name: str, kept: StreamingTable) -> DataFrame:
        """Return all rows of a stream as a table; kept: the table that keeps those which no table has."""
        ...

    def sql(self, text: str) -> DataFrame:
        """Return the frame of a SQL text over them."""
        ...


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The file and the line (from 1) of a declaration."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of a published table; schema: DDL of its columns, or their names; empty where none is declared."""

    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    schema: str = ""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A query and the table that keeps its answer.

    kept: whether it has a table of its own; policy: `auto` recomputes where that is cheaper or the query cannot be
    maintained, `incremental` only where the query cannot be maintained, `incremental_strict` never, `full` always;
    publish_as: the name of its SQL view, None for its own name, or for none where the project declares its sources;
    tags: which selections may name; refusal: why its declaration has no meaning here, empty if it has one; events: of
    an AUTO CDC flow, the table that keeps its events where its source streams others than its tables have (D-236).
    """

    name: str
    query: str | QueryFunction
    origin: Origin
    kept: bool = True
    policy: RefreshPolicy = "auto"
    options: TableOptions = field(default_factory=TableOptions)
    publish_as: str | None = None
    tags: tuple[str, ...] = ()
    refusal: str = ""
    events: StreamingTable | None = None


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A streaming query whose rows are appended to a streaming table, each once."""

    name: str
    query: str | QueryFunction
    origin: Origin


@dataclass(frozen=True, kw_only=True)
class StreamingTable:
    """A table to which flows append; what reads it sees a source whose rows are only added.

    refusal: why its declaration has no meaning here, empty if it has one.
    """

    name: str
    flows: tuple[Flow, ...]
    origin: Origin
    options: TableOptions = field(default_factory=TableOptions)
    refusal: str = ""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project as its files declare it.

    storage: the folder or URI of states, answers and checkpoints; catalog and database: of names that have fewer parts,
    None for the session's; tables: a folder or URI that has, as DATABASE/NAME, the Delta tables which no dataset is,
    None where the catalog has them; sources: the declarations of all that no dataset is, None where that is tables of
    the catalog; settings: of Spark's session, for all queries; spark: how it starts, as arguments of `session.start`;
    nodes: what a selection may name, None where that is found in the queries; refusals: see the module.
    """

    name: str
    folder: Path
    storage: str
    datasets: tuple[Dataset, ...]
    streaming_tables: tuple[StreamingTable, ...] = ()
    catalog: str | None = None
    database: str | None = None
    tables: str | None = None
    sources: Mapping[str, SourceDeclaration] | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    spark: Mapping[str, Any] = field(default_factory=dict[str, Any])
    nodes: tuple[Node, ...] | None = None
    refusals: tuple[str, ...] = ()


def refuse_datasets(datasets: Iterable[Dataset]) -> list[str]:
    """Return a sentence for each dataset whose declaration has no meaning here, with file and line."""
    return [f"{each.origin}: {each.name}: {each.refusal}" for each in datasets if each.refusal]
