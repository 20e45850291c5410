"""Define what a user may say of the plain table of an answer: comment, table properties, clustering (D-193)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import astuple, dataclass
from typing import Literal

Publish = Literal["auto", "plain", "fast", "table"]
"""Whether the answer is published as a plain table, too: while it is small, always, never; `table`: as `auto`, and the
maintained answer is not stored in the columns of a state."""
OUR_PROPERTIES = {"delta.appendonly", "delta.columnmapping.mode", "delta.enabledeletionvectors"}
OUR_PREFIX = "deltafold."
OF_SPARK = {"comment", "external", "is_managed_location", "location", "owner", "provider"}


@dataclass(frozen=True, kw_only=True)
class PlainOptions:
    """The options of a plain table; properties: in the order of their names."""

    comment: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    cluster_by: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A digest of them; empty if nothing is declared."""
        text = repr(astuple(self))
        return "" if self == PlainOptions() else hashlib.sha256(text.encode()).hexdigest()[:16]

    def fault(self, publish: str) -> str | None:
        """Return why these options cannot be, and the fix; None if they can."""
        if publish == "fast" and (self.properties or self.cluster_by):
            return "table_properties and cluster_by are of the plain table. Leave them out, or do not publish it fast"
        for name, _ in self.properties:
            if name.lower() in OUR_PROPERTIES or name.lower().startswith(OUR_PREFIX):
                return f"table_properties: {name} is set by Deltafold. Leave it out"
            if name.lower() in OF_SPARK:
                return f"table_properties: {name} is reserved by Spark. Choose another name"
        return None

    def clustering_fault(self, columns: Collection[str]) -> str | None:
        """Return why an answer with these columns cannot be clustered so, and the fix; None if it can."""
        missing = next((name for name in self.cluster_by if name not in columns), None)
        return None if missing is None else f"cluster_by: the answer has no column {missing}. Name one that it has"
