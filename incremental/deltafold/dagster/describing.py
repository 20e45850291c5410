"""Describe a project for its assets; while developing, again by Spark if files of a Spark pipeline changed (D-238).

`dagster dev` and the commands of `dg` set a variable for the processes that they start, by which components with a
state, and dagster-dbt, decide the same.
"""

import os
import subprocess
import sys
from hashlib import sha256

import dagster as dg
from filelock import FileLock

from deltafold.pipelines.catalogue import DeclarationError
from deltafold.pipelines.described_project import ProjectDescription
from deltafold.pipelines.project_files import ProjectFiles
from deltafold.spark.cache import cache_folder

DEVELOPING = "DAGSTER_IS_DEV_CLI"
LAST_LINES = 15


def describe_project(files: ProjectFiles) -> ProjectDescription:
    """Return the description of a project; starts no Spark, unless one has to be written while developing.

    Raises:
        DeclarationError: the project cannot be described.
    """
    try:
        return files.describe()
    except DeclarationError:
        if files.kind != "spark" or not files.path.is_file() or not os.environ.get(DEVELOPING):
            raise
    lock = cache_folder("describing") / f"{sha256(str(files.path).encode()).hexdigest()[:16]}.lock"
    with FileLock(lock):
        try:
            return files.describe()  # another process has written it meanwhile
        except DeclarationError:
            _write_description(files)
    return files.describe()


def _write_description(files: ProjectFiles) -> None:
    dg.get_dagster_logger().info(f"{files.path}: its datasets are described again, by Spark.")
    command = [sys.executable, "-m", "deltafold", "dry-run", "--spec", str(files.path), "--describe"]
    done = subprocess.run(command, cwd=files.path.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-LAST_LINES:])
        raise DeclarationError(f"{files.path}: deltafold dry-run --describe failed. {lines}")
