"""Make environments with the built package in them, as its users do, by uv: from its cache that takes seconds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from deltafold.spark.cache import cache_folder
from tests.spark.machine import PROJECT

UV = Path(sys.executable).with_name("uv")
UNREACHABLE = re.compile(r"error sending request|Failed to fetch|dns error|Connection refused|timed out", re.IGNORECASE)
PINNED = re.compile(r"^([a-z0-9._-]+==[^\\]+?) *\\?$", re.MULTILINE)


def uv(*arguments: str) -> str:
    """Run uv, and return its output; the test is skipped where the registry of packages does not answer."""
    variables = os.environ | {"UV_CACHE_DIR": str(cache_folder("uv")), "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run([str(UV), *arguments], env=variables, capture_output=True, text=True, cwd=PROJECT)
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"packages cannot be fetched: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


def build(folder: Path) -> Path:
    """Build the source distribution, from that the wheel, and return the wheel."""
    uv("build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder))
    (wheel,) = folder.glob("*.whl")
    return wheel


def find_python(version: str) -> str:
    """Return the interpreter of a version, on the path or of pyenv; the test is skipped where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    names = [f"python{version}", *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}")))]
    for name in names:
        with suppress(OSError):  # pyenv has a command of each version on the path, which may refuse to run
            done = subprocess.run([name, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
            if done.returncode == 0:
                return done.stdout.strip()
    pytest.skip(f"there is no Python {version} here: apt-get install python{version} where Debian has it, or use pyenv")


def environment(folder: Path, wanted: Sequence[str], python: str = sys.executable, *, pinned: bool = True) -> Path:
    """Return the `bin` of a new environment with these packages and what they need, nothing else.

    pinned: at the releases of constraints.txt, which limit what is installed and add nothing.
    """
    uv("venv", "--quiet", "--python", python, str(folder))
    pins = folder / "pins.txt"
    pins.write_text("\n".join(PINNED.findall((PROJECT / "constraints.txt").read_text())) if pinned else "")
    into = ("--python", str(folder / "bin" / "python"), "--constraint", str(pins))
    uv("pip", "install", "--quiet", *into, *wanted)
    return folder / "bin"
