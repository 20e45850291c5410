"""Runtime room: what has been landed of a source. In: its folder and declaration. Out: facts of its partitions, kept.

A manifest beside the table remembers what each partition's files contained, so that unchanged ones are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from incremental.algebra.sources import Files
from incremental.runtime.dropped import Facts


@dataclass(frozen=True)
class Known:
    """What the manifest says of a partition: the facts of its files, and a digest of their content."""

    files: Facts
    digest: str


@dataclass(frozen=True)
class Manifest:
    """The manifest of one source, in a folder of its own."""

    folder: Path
    files: Files

    def read(self) -> dict[str, Known] | None:
        """What is landed; None where nobody knows."""
        try:
            content = json.loads((self.folder / "manifest.json").read_text())
            if content["declared"] != self._declared:
                return None
            return {key: Known(**known) for key, known in content["partitions"].items()}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, partitions: Mapping[str, Known]) -> None:
        """Remember what is landed."""
        content = {"declared": self._declared, "partitions": {key: asdict(known) for key, known in partitions.items()}}
        scratch = self.folder / "manifest.tmp"
        scratch.write_text(json.dumps(content, sort_keys=True))
        scratch.replace(self.folder / "manifest.json")

    @property
    def _declared(self) -> str:
        """What the content of the table depends on beside the files."""
        return json.dumps([self.files.format, self.files.partition_by, sorted(self.files.options.items())])
