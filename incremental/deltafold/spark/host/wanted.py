"""Find the host for a Spark's settings: one file for each set of jars, master, heap and settings of the whole Spark."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from deltafold.spark.cache import cache_folder
from deltafold.spark.session_settings import MEMORY

SESSION_SETTINGS = ("spark.sql.", "spark.databricks.")  # each guest has its own, except for those of `find_misfit`
GUEST_BYTES = 512 << 20  # of the heap for each guest


@dataclass(frozen=True)
class WantedSpark:
    """Master, heap and settings of a Spark; idle_seconds: how long a host keeps it without guests, 0 for no limit."""

    master: str = "local[*]"
    memory: str = MEMORY
    settings: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    idle_seconds: float = 0.0

    @property
    def file(self) -> Path:
        """The file of its host, in this user's cache; the same for Sparks that differ in settings of sessions alone."""
        shared = {name: value for name, value in self.settings.items() if not name.startswith(SESSION_SETTINGS)}
        facts = [sys.executable, version("pyspark"), version("delta-spark"), self.master, self.memory, shared]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return find_hosts_folder() / f"{digest[:16]}.json"

    @property
    def most_guests(self) -> int:
        """The processes that may use it at once, by its heap."""
        amount = re.fullmatch(r"(\d+)([mg])b?", self.memory, re.IGNORECASE)
        heap = int(amount[1]) << (30 if amount[2].lower() == "g" else 20) if amount else 0
        return max(1, heap // GUEST_BYTES)

    @property
    def shown(self) -> str:
        """Master and heap."""
        return f"{self.master}, {self.memory}"

    def to_json(self) -> str:
        """Return JSON, which a host reads from standard input."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> WantedSpark:
        """Return the Spark of a JSON text of `to_json`."""
        return cls(**json.loads(text))

    def find_misfit(self, conf: Any) -> str:
        """Return the first setting that a session of the host cannot take over; empty if there is none."""
        for name, value in self.settings.items():
            if not conf.isModifiable(name) and conf.get(name, None) != value:
                return f"its {name} is another one, and only a new Spark can change it"
        return ""


def find_hosts_folder() -> Path:
    """Return the folder of the files of this user's hosts."""
    return cache_folder("hosts", private=True)


def list_files() -> list[Path]:
    """Return the files of all hosts that were started for settings, and not withdrawn."""
    return sorted(find_hosts_folder().glob("*.json"))
