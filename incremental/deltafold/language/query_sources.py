"""Define what the compilation of a query asks of its sources."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from pyspark.sql.types import StructType

from deltafold.algebra.constraints import Constraint
from deltafold.algebra.monoids.declared import DeclaredMonoid


class Sources(Protocol):
    """The sources of a query: declared tables and files, and views declared as sources."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all sources."""
        ...

    @property
    def views(self) -> frozenset[str]:
        """The names of sources that are views."""
        ...

    @property
    def invariant(self) -> frozenset[str]:
        """The names of sources that are declared invariant."""
        ...

    @property
    def monoids(self) -> Mapping[str, DeclaredMonoid]:
        """The declared monoids, by their names in lower case."""
        ...

    def schema(self, name: str) -> StructType | None:
        """Return the schema of a source, None if it has none yet or is not declared."""
        ...

    def peek(self, name: str) -> StructType | None:
        """Return the schema of a source that the query need not read, None also if the lookup fails."""
        ...

    def without_data(self, name: str, was_read: bool) -> str:
        """Return why a source has no schema, and the fix; was_read: an epoch has read it."""
        ...

    def partitioned_by(self, name: str) -> tuple[str, ...]:
        """Return the partition columns of a source; of a view, the one that its answer contains."""
        ...

    def constraints(self, read: Collection[str]) -> tuple[Constraint, ...]:
        """Return the declared constraints of sources that a query reads; raises SourceError for missing columns."""
        ...
