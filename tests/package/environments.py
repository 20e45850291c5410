"""Make environments with the built package in them, as its users do, by uv: from its cache that takes seconds."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from email import message_from_bytes
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def requirements(wheel: Path, extras: Sequence[str]) -> set[str]:
    """Return the names of the packages that a wheel needs with these extras, directly or not; all are here."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [file for file in archive.namelist() if file.endswith(".dist-info/METADATA")]
        declared = message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    waiting, needed = _needed(declared, extras), set[tuple[str, str]]()
    while waiting:
        requirement = waiting.pop()
        wanted = {(canonicalize_name(requirement.name), extra) for extra in ("", *requirement.extras)} - needed
        needed |= wanted
        if wanted:
            metadata = importlib.metadata.distribution(requirement.name)
            waiting += _needed(metadata.requires or (), [extra for _, extra in wanted])
    return {name for name, _ in needed}


def _needed(declared: Iterable[str], extras: Sequence[str]) -> list[Requirement]:
    """Return those of the declared requirements that hold here, with these extras."""
    every = map(Requirement, declared)
    return [r for r in every if r.marker is None or any(r.marker.evaluate({"extra": extra}) for extra in ("", *extras))]


def link(names: Iterable[str], packages: Path) -> None:
    """Put packages of this environment into another one, as links to their files and to the compiled ones of these.

    Not to folders: to install another release would remove files in this environment.
    """
    for name in names:
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            if ".." in file.parts:
                continue
            source, target = Path(str(distribution.locate_file(file))), packages / file
            _link(source, target)
            if file.suffix == ".py":
                _link(Path(cache_from_source(str(source))), Path(cache_from_source(str(target))))


def _link(source: Path, target: Path) -> None:
    if source.is_file() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)


def environment(
    folder: Path,
    wanted: Sequence[str],
    python: str = sys.executable,
    *,
    pinned: bool = True,
    linked: Iterable[str] = (),
) -> Path:
    """Return the `bin` of a new environment with these packages and what they need, nothing else.

    pinned: at the releases of constraints.txt, which limit what is installed and add nothing. linked: packages that are
    links to those of this environment, instead of being fetched and built again, if they are needed.
    """
    uv("venv", "--quiet", "--python", python, str(folder))
    link(linked, next((folder / "lib").glob("python*/site-packages")))
    pins = folder / "pins.txt"
    pins.write_text("\n".join(PINNED.findall((PROJECT / "constraints.txt").read_text())) if pinned else "")
    into = ("--python", str(folder / "bin" / "python"), "--constraint", str(pins))
    uv("pip", "install", "--quiet", *into, *wanted)
    return folder / "bin"
