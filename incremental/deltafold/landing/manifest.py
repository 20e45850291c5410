"""Record which partitions were landed, and what their files were, for the next landing.

One small JSON file beside the lock of a landed source. Partitions that are about to be written are recorded as pending
first: whatever a crash leaves in the tables, the next landing writes these partitions again, even if their files have
been put back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from deltafold.lake.durable import write_durably
from deltafold.lake.remote.remote_path import Place
from deltafold.landing.folder import Facts


@dataclass(frozen=True)
class Known:
    """What is remembered of a partition: the facts of its files, and a digest of their content."""

    files: Facts
    digest: str


PENDING = Known([], "")  # equals no partition that has files


@dataclass(frozen=True)
class Manifest:
    """The memory of one source's landings, and what the content of its table depends on beside the files.

    declared: of the source; settings: of the session, which earlier releases did not remember and are taken not to have
    changed since.
    """

    folder: Place
    declared: str
    settings: dict[str, str]

    def read(self) -> dict[str, Known] | None:
        """Return what is landed, by partition; None if unknown, or if the source was declared or read differently."""
        try:
            content = json.loads((self.folder / "manifest.json").read_text())
            if content["declared"] != self.declared or content.get("settings", self.settings) != self.settings:
                return None
            return {key: Known(**known) for key, known in content["partitions"].items()}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def begin(self, known: Mapping[str, Known] | None, partitions: Iterable[str]) -> None:
        """Record that partitions are about to be written; where nothing was known before, nothing is until they are."""
        self.remember(None if known is None else {**known, **dict.fromkeys(partitions, PENDING)})

    def remember(self, partitions: Mapping[str, Known] | None) -> None:
        """Write what is landed, whole or not at all; None: nobody knows."""
        recorded = {key: asdict(known) for key, known in (partitions or {}).items()}
        content = {"declared": self.declared, "settings": self.settings, "partitions": recorded}
        write_durably(self.folder / "manifest.json", json.dumps({} if partitions is None else content, sort_keys=True))
