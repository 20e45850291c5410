"""Describe a project for its assets; while developing, again by Spark or dbt if its files changed (D-238, D-241).

`dagster dev` and the commands of `dg` set a variable for the processes that they start, by which components with a
state, and dagster-dbt, decide the same.
"""

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import dagster as dg
from filelock import FileLock

from deltafold.algebra.errors import DeltafoldWarning
from deltafold.pipelines.catalogue import DeclarationError
from deltafold.pipelines.dbt import COMPILE, PROJECT_FILE, list_folders
from deltafold.pipelines.described_project import ProjectDescription
from deltafold.pipelines.project_files import ProjectFiles
from deltafold.spark.cache import cache_folder

DEVELOPING = "DAGSTER_IS_DEV_CLI"
LAST_LINES = 15
DBT_FILES = frozenset({".sql", ".yml", ".yaml", ".csv", ".md"})
"""The endings of files that dbt reads in a project."""


def describe_project(files: ProjectFiles) -> ProjectDescription:
    """Return the description of a project; starts no Spark, unless one has to be written while developing.

    Raises:
        DeclarationError: the project cannot be described.
    """
    if os.environ.get(DEVELOPING) and (command := _find_command(files)):
        lock = cache_folder("describing") / f"{sha256(str(files.path).encode()).hexdigest()[:16]}.lock"
        with FileLock(lock):
            if _is_outdated(files):  # otherwise another process has described it meanwhile
                _run(command, files)
    return files.describe()


def _find_command(files: ProjectFiles) -> Sequence[str] | None:
    """Return what describes a project again; None if nothing has to, or can."""
    match files.kind:
        case "spark" if files.path.is_file() and _is_outdated(files):
            return (sys.executable, "-m", "deltafold", "dry-run", "--spec", str(files.path), "--describe")
        case "dbt" if _is_outdated(files):
            beside = Path(sys.executable).with_name("dbt")
            if dbt := str(beside) if beside.is_file() else shutil.which("dbt"):
                return (dbt, "--quiet", "compile", "--full-refresh", "--target-path", str(files.path.parent))
            text = f"{files.path}: files of the project are newer, and there is no dbt to compile them. {COMPILE}."
            warnings.warn(text, DeltafoldWarning, stacklevel=2)
            return None
        case _:
            return None


def _is_outdated(files: ProjectFiles) -> bool:
    """Return whether files of a project changed since it was described."""
    if files.kind == "dbt":
        return _is_outdated_manifest(files.path)
    try:
        files.describe()
    except DeclarationError:
        return True
    return False


def _is_outdated_manifest(manifest: Path) -> bool:
    """Return whether a file that dbt reads is newer than its manifest; one without its project is as it is."""
    project = manifest.parent.parent / PROJECT_FILE
    if not project.is_file():
        return False
    written = manifest.stat().st_mtime if manifest.is_file() else 0.0
    return any(file.stat().st_mtime > written for file in _list_files(project))


def _list_files(project: Path) -> Iterator[Path]:
    """Yield the files that dbt reads of a project, and the folders that hold them, which a removed file changes."""
    yield project
    for folder in list_folders(project):
        for at, _, names in os.walk(project.with_name(folder)):
            yield Path(at)
            yield from (Path(at, name) for name in names if Path(name).suffix in DBT_FILES)


def _run(command: Sequence[str], files: ProjectFiles) -> None:
    folder = files.path.parent.parent if files.kind == "dbt" else files.path.parent
    said = "dbt compile" if files.kind == "dbt" else "deltafold dry-run --describe"
    dg.get_dagster_logger().info(f"{files.path}: its project changed, so {said} describes it again.")
    plain = {**os.environ, "DBT_USE_COLORS": "false"}
    done = subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-LAST_LINES:])
        raise DeclarationError(f"{files.path}: {said} failed. {lines}")
