"""The site of docs/, built as `make docs` builds it: a link, an anchor or a page that leads nowhere is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.spark.machine import PROJECT


def test_the_site_is_built(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
