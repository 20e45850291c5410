"""Define the description of a project without Spark: its datasets and what each reads, for an orchestrator's graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.selection import Node


@dataclass(frozen=True, kw_only=True)
class DescribedSource:
    """A table that datasets read and the project does not write, except where it lands it.

    table: its name in lower case, complete or without its first parts, of a table of the catalog; delta: its path or
    URI; key: the parts of its name; id: of its node in dbt's manifest; lands: the input files or the stream that a run
    lands in it, empty for other tables.
    """

    name: str
    key: tuple[str, ...]
    id: str = ""
    table: str = ""
    delta: str = ""
    lands: str = ""
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class DescribedTest:
    """A test of a dataset: dbt's, which counts rows that should not be there.

    id: of its node in dbt's manifest; query: of these rows; limit: the largest number of these rows that are
    measured; measure: what is compared, of them; error_if, warn_if: the rest of a comparison, in SQL; an error is just
    a warning under the severity `warn`.
    """

    id: str
    name: str
    query: str
    limit: int | None = None
    measure: str = "count(*)"
    error_if: str = "!= 0"
    warn_if: str = "!= 0"
    severity: str = "error"
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class DescribedDataset:
    """A dataset that has a table, as an orchestrator shows it.

    name: as its files have it; relation: the name that it has in the project; key: the parts of its name, of a dbt
    model those that dagster-dbt gives it; reads: names of sources, and relations of datasets; file: of its query, from
    the folder of the project; is_view: whether it is maintained, and has epochs; columns: names, types and comments, as
    far as they are declared; meta: of dbt's manifest; tests: likewise.
    """

    project: str
    name: str
    relation: str
    key: tuple[str, ...]
    reads: tuple[str, ...]
    file: str
    folder: str = ""
    line: int = 1
    id: str = ""
    query: str = ""
    is_view: bool = True
    description: str = ""
    tags: tuple[str, ...] = ()
    group: str | None = None
    owners: tuple[str, ...] = ()
    columns: tuple[tuple[str, str, str], ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tests: tuple[DescribedTest, ...] = ()

    @property
    def node(self) -> Node:
        """The dataset as a selection names it."""
        reads, relation = self.reads, self.relation
        return Node(id=relation, qualified=self.key, tags=self.tags, path=self.file, reads=reads, dataset=relation)


@dataclass(frozen=True, kw_only=True)
class ProjectDescription:
    """A project, and its datasets, each after those that it reads.

    nodes: what a selection may name, None where that follows from the datasets; share: of the keys that a check
    compares; show_rows: whether errors may show values of rows.
    """

    name: str
    datasets: tuple[DescribedDataset, ...]
    sources: Mapping[str, DescribedSource]
    nodes: tuple[Node, ...] | None = None
    share: str = "100%"
    show_rows: bool = False

    @property
    def selectable(self) -> tuple[Node, ...]:
        """What a selection may name."""
        if self.nodes is not None:
            return self.nodes
        sources = (Node(id=name, qualified=source.key, kind="source") for name, source in self.sources.items())
        return (*sources, *(each.node for each in self.datasets))

    def find_source(self, name: str) -> str | None:
        """Return the name of the source that is the table of a complete name in lower case, None if none is."""
        tables = {each.name: each.table for each in self.sources.values() if each.table}
        return next((source for source, table in tables.items() if f".{name}".endswith(f".{table}")), None)


def sort_datasets(datasets: tuple[DescribedDataset, ...], where: Path) -> tuple[DescribedDataset, ...]:
    """Return datasets, each after those that it reads. Raises DeclarationError for a cycle."""
    by_relation = {each.relation: each for each in datasets}
    reads = {each.relation: [name for name in each.reads if name in by_relation] for each in datasets}
    try:
        return tuple(by_relation[relation] for relation in TopologicalSorter(reads).static_order())
    except CycleError as error:
        names = " → ".join(by_relation[relation].name for relation in reversed(error.args[1]))
        raise DeclarationError(f"{where}: the datasets read each other in a cycle ({names}). Remove one.") from None
