"""Protect the files of a landing from changes by other users while Spark reads them.

Spark opens files by name, some time after they were checked. Where others may write, a name can lead elsewhere by then;
so its files are linked into a folder that only this user may enter, or copied where the system does not let them be
linked (another disk, files of another user). Where nobody else may write, they are read where they are.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deltafold.lake.durable import Folder, make_private
from deltafold.landing.containment import is_shared, open_file_within, open_folder_of
from deltafold.landing.folder import Partition


@dataclass(frozen=True)
class Staging:
    """The files of one source: its name, its folder, and the folder that is ours."""

    source: str
    root: Path
    folder: Path

    @contextmanager
    def stage(self, partitions: Sequence[Partition]) -> Generator[Path]:
        """Yield the folder where the files of some partitions are safe to read, below it as below the source's own."""
        if not is_shared(self.root, [partition.folder for partition in partitions]):
            yield self.root
            return
        self.clear()
        try:
            self.fill([path for partition in partitions for path in partition.paths])
            yield self.folder
        finally:
            self.clear()

    def fill(self, paths: Sequence[Path]) -> None:
        """Link or copy files into the staging folder."""
        make_private(self.folder)
        for path in paths:
            target = self.folder / path.relative_to(self.root)
            make_private(target.parent)
            if not self._link(path, target):
                with open_file_within(self.source, self.root, path) as file, target.open("xb") as copy:
                    shutil.copyfileobj(file, copy, 1 << 20)

    def clear(self) -> None:
        """Remove our folder, with what a crash left in it."""
        Folder(self.folder).remove()

    def _link(self, path: Path, target: Path) -> bool:
        """Return whether the file could be linked; refuses a name that became a link or a pipe meanwhile."""
        with open_folder_of(self.source, self.root, path) as (folder, name), suppress(OSError):
            os.link(name, target, src_dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(target.lstat().st_mode):
                return True
            target.unlink()
        return False
