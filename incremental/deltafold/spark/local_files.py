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


def replace_file(path: Path, text: str, mode: int = 0o666) -> None:
    """Replace a file atomically, for processes that read or write it at the same time; a power cut may lose it.

    mode: as for `os.open`, so that the umask may restrict it further.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)  # of a process that died and had this number
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)
