"""Replace local files atomically, and flush folders to the disk; usable where Spark is not imported."""

from __future__ import annotations

import os
from pathlib import Path


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk: otherwise a power cut can undo a rename that readers have seen."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
