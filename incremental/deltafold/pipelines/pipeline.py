"""Define a pipeline: its folder, its declaration, its query, and the pipelines whose views it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from deltafold.algebra.local_path import is_remote, is_uri
from deltafold.pipelines import queries
from deltafold.pipelines.declaration.declaration import Declaration
from deltafold.pipelines.declaration.parsing import DeclarationError

DEFAULT_WAREHOUSE = ".warehouse"


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A declared pipeline. warehouse is its own folder or URI, below the declared (or default) one.

    below: the pipelines whose views it reads, by source; in_folder: whether `folder` has its pipeline.yaml, so that
    another process can load it.
    """

    name: str
    folder: Path
    declaration: Declaration
    query: queries.QueryFile
    below: Mapping[str, Pipeline] = field(default_factory=dict[str, "Pipeline"])
    in_folder: bool = True

    @property
    def warehouse(self) -> str:
        """The folder of state and answer, which no other pipeline uses."""
        root = self.declaration.warehouse or str(self._default_root)
        return f"{root.rstrip('/')}/{self.name}"

    @property
    def origin(self) -> str:
        """The file of the query, if it has one, and the pipeline's name, which errors about the query begin with."""
        return f"{self.query.path}: {self.name}" if self.query.path.is_file() else self.name

    @property
    def is_remote(self) -> bool:
        """Whether its warehouse is at a URI, so that only Spark can read it."""
        return is_remote(self.warehouse)

    def note(self, kind: str) -> Path:
        """Return the file `kind` about this pipeline that this machine keeps for itself: beside a local warehouse."""
        beside = self._default_root / self.name if self.is_remote else Path(self.warehouse)
        return beside.with_name(f"{beside.name}.{kind}")

    @property
    def _default_root(self) -> Path:
        return self.folder.parent.parent / DEFAULT_WAREHOUSE

    @cached_property
    def chain(self) -> tuple[Pipeline, ...]:
        """Return the pipelines below it, at any depth, each once and before its readers."""
        chain: dict[str, Pipeline] = {}
        for below in self.below.values():
            chain |= {pipeline.name: pipeline for pipeline in (*below.chain, below)}
        return tuple(chain.values())

    @property
    def landed(self) -> tuple[str, ...]:
        """Return the sources that are landed, from input files or from a stream."""
        return tuple(name for name, source in self.declaration.sources.items() if source.files or source.stream)

    @property
    def streams(self) -> tuple[str, ...]:
        """Return the sources that are landed from a stream."""
        return tuple(name for name, source in self.declaration.sources.items() if source.stream)

    @property
    def folders(self) -> Mapping[str, tuple[str, str | None]]:
        """Return the folders to which files are added, with their partition columns, by source.

        They are on this machine, or in a store if they are of input files.
        """
        folders: dict[str, tuple[str, str | None]] = {}
        for name, source in self.declaration.sources.items():
            if source.files:
                folders[name] = (source.files.path, source.files.partition_by)
            elif source.stream and source.stream.path and not is_uri(source.stream.path):
                folders[name] = (source.stream.path, None)
        return folders

    @property
    def partitioned(self) -> tuple[str, ...]:
        """Return the landed sources that are partitioned."""
        sources = self.declaration.sources.items()
        return tuple(name for name, source in sources if source.files and source.files.partition_by)

    def check_partition(self, value: str) -> str:
        """Return the value if it can be a partition of this pipeline. Raises DeclarationError otherwise."""
        if not self.partitioned:
            raise DeclarationError(
                f"{self.name} has no partitions: none of its sources declares `partition_by`. Leave the partition out."
            )
        try:
            return self.declaration.partitioning.check(value)
        except ValueError as error:
            raise DeclarationError(f"{self.name}: {error}.") from None
