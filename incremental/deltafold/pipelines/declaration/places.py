"""Resolve the paths in a declaration to absolute paths or URIs.

A path may contain `${VARIABLE}` or `${VARIABLE:-default}`, and is relative to the pipeline's own folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationInfo

from deltafold.algebra.local_path import is_remote, is_uri, plain, remote_fault, uri_fault
from deltafold.algebra.results.address import sql_name_fault
from deltafold.algebra.secrets import INSTEAD, has_password
from deltafold.algebra.sqltext import table_name_fault

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
VARIABLE_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")


def locate(path: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Return a declared path as an absolute one: variables substituted, relative to `folder`; URIs unchanged.

    ValueError if a variable is not set or nothing is left.
    """
    text = substitute(path, environment)
    if not text.strip():
        raise ValueError("the path is empty. Name a folder")
    if CONTROL.search(text):
        raise ValueError("the path contains a control character. Remove it")
    if has_password(text):
        raise ValueError(f"the address contains a password, which does not belong in this file. {INSTEAD}")
    if is_uri(text):
        return text.strip()
    if fault := uri_fault(text):
        raise ValueError(fault)
    return os.path.normpath(folder / Path(text).expanduser())


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """Substitute the variables in a text; raises ValueError for one that is not set."""
    filled = VARIABLE_REFERENCE.sub(lambda found: _variable(found, environment), text)
    if "${" in filled:
        raise ValueError("`${` opens a variable that is not closed or not a name. Write ${NAME} or ${NAME:-default}")
    return filled


def _variable(found: re.Match[str], environment: Mapping[str, str]) -> str:
    name, default = found.groups()
    value = environment.get(name) or default
    if value is None:
        raise ValueError(f"the environment variable {name} is not set. Set it, or write ${{{name}:-a default}}")
    return value


def _check_location(path: str, info: ValidationInfo) -> str:
    context: Mapping[str, Any] = info.context or {}
    return locate(path, context.get("folder", Path.cwd()), context.get("environment", os.environ))


def _check_local(path: str) -> str:
    if fault := uri_fault(path):
        raise ValueError(fault)
    return os.path.normpath(plain(path))


def _check_root(path: str) -> str:
    if not is_remote(path):
        return _check_local(path)
    if fault := remote_fault(path):
        raise ValueError(fault)
    return path.rstrip("/")


def _check_table_name(name: str, info: ValidationInfo) -> str:
    context: Mapping[str, Any] = info.context or {}
    filled = substitute(name, context.get("environment", os.environ))
    if fault := table_name_fault(filled):
        raise ValueError(f"{fault}, in `delta:`")
    return filled


def _check_sql_name(name: str) -> str:
    if fault := sql_name_fault(name):
        raise ValueError(fault)
    return name


Location = Annotated[str, AfterValidator(_check_location)]
FolderOrStore = Annotated[Location, AfterValidator(_check_root)]
TableName = Annotated[str, AfterValidator(_check_table_name)]
SqlName = Annotated[str, AfterValidator(_check_sql_name)]
