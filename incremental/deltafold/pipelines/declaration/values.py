"""Check single values of pipeline.yaml: sizes, shares, paths, names, days, options and settings.

A path may contain `${VARIABLE}` or `${VARIABLE:-default}`, and is relative to the pipeline's own folder.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo

from deltafold.algebra.local_path import is_remote, is_uri, plain, remote_fault, uri_fault
from deltafold.algebra.results.address import sql_name_fault
from deltafold.algebra.secrets import INSTEAD, has_password, is_secret
from deltafold.algebra.sources import as_text
from deltafold.algebra.sqltext import table_name_fault

PIPELINE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
MASTER = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|(spark|k8s|mesos)://.+|yarn")
NAME_RULE = "Use a small letter followed by small letters, digits and _, at most 63 in all"
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
VARIABLE_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")
_AMOUNT = re.compile(r"([1-9][0-9]*)([mg])\Z", re.IGNORECASE)
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?) ?%\Z")


def parse_size(text: str) -> int:
    """Return the bytes of `512m` or `2g`; raises ValueError with the correct form."""
    match = _AMOUNT.match(text)
    if not match:
        raise ValueError(f"`{text}` is not an amount. Write a number and m or g, for example 2g or 512m")
    return int(match[1]) << (30 if match[2].lower() == "g" else 20)


def share_of(text: str) -> float:
    """Return the share of `1%` or `0.5%`, above 0 and at most 1; raises ValueError with the correct form."""
    match = _PERCENT.match(text)
    share = float(match[1]) / 100 if match else 0.0
    if not 1e-5 <= share <= 1:
        raise ValueError(f"`{text}` is not a share. Write for example 1% or 0.5%, at most 100%")
    return share


def check_share(text: str) -> str:
    """Return the text if it is a share."""
    share_of(text)
    return text


def check_size(text: str) -> str:
    """Return the text if it is a size."""
    parse_size(text)
    return text


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
    filled = VARIABLE_REFERENCE.sub(lambda reference: _variable(reference, environment), text)
    if "${" in filled:
        raise ValueError("`${` opens a variable that is not closed or not a name. Write ${NAME} or ${NAME:-default}")
    return filled


def _variable(reference: re.Match[str], environment: Mapping[str, str]) -> str:
    name, default = reference.groups()
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


def _as_date(value: object) -> object:
    """Accept only days such as 2013-01-01: a number would be read as seconds since 1970."""
    day = day_of(value) if isinstance(value, str) else value
    if isinstance(day, datetime.datetime) or not isinstance(day, datetime.date):
        raise ValueError("it is not a day. Write one such as 2013-01-01")
    return day


def day_of(text: str) -> datetime.date | None:
    """Return the day if the text has the form of folder names."""
    try:
        day = datetime.date.fromisoformat(text)
    except ValueError:
        return None
    return day if day.isoformat() == text else None


def _as_source_name(name: str) -> str:
    if not PIPELINE_NAME.match(name):
        raise ValueError(f"invalid source name. {NAME_RULE}")
    return name


def _as_pipeline_name(name: str) -> str:
    if not PIPELINE_NAME.match(name):
        raise ValueError(f"invalid pipeline name `{name}`. {NAME_RULE}")
    return name


def _as_master(value: str) -> str:
    """Return a master URL of Spark."""
    if not MASTER.fullmatch(value):
        raise ValueError(
            f"`{value}` is not a master URL of Spark. Write local[*], spark://host:7077, yarn or k8s://host:443"
        )
    return value


def _as_setting(name: str) -> str:
    if not name.startswith("spark."):
        raise ValueError("it is not a setting of Spark. Write a name that starts with `spark.`")
    return name


def _no_secret(settings: dict[str, str]) -> dict[str, str]:
    for name, value in settings.items():
        if is_secret(name, value):
            raise ValueError(f"`{name}` looks like a secret, which does not belong in this file. {INSTEAD}")
    return settings


YamlText = Annotated[str, BeforeValidator(as_text, json_schema_input_type=str | float | bool)]
SourceName = Annotated[str, AfterValidator(_as_source_name)]
PipelineName = Annotated[str, AfterValidator(_as_pipeline_name)]
Options = Annotated[dict[str, YamlText], AfterValidator(_no_secret)]
SparkSettings = Annotated[dict[Annotated[str, AfterValidator(_as_setting)], YamlText], AfterValidator(_no_secret)]
Amount = Annotated[str, AfterValidator(check_size)]
Master = Annotated[str, AfterValidator(_as_master)]
Day = Annotated[datetime.date, BeforeValidator(_as_date, json_schema_input_type=datetime.date)]


def limit_fault(keys: Collection[str], malformed: str) -> str:
    """Return the fault of a limit without a quarantine; empty if there is none; keys: those that the file has."""
    if "quarantine_limit" in keys and malformed == "fail":
        return "`quarantine_limit` is for `malformed: quarantine`. Add that, or remove the limit"
    return ""


class Part(BaseModel):
    """A mapping of pipeline.yaml; unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
