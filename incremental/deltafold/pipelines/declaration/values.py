"""Check single values of pipeline.yaml: names, days, amounts, options and settings."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from deltafold.algebra.secrets import INSTEAD, is_secret
from deltafold.algebra.sources import as_text
from deltafold.pipelines.declaration import sizes

PIPELINE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
MASTER = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|(spark|k8s|mesos)://.+|yarn")
NAME_RULE = "Use a small letter followed by small letters, digits and _, at most 63 in all"


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
        raise ValueError(f"`{value}` is no master of Spark. Write local[*], spark://host:7077, yarn or k8s://host:443")
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


YamlText = Annotated[str, BeforeValidator(as_text)]
SourceName = Annotated[str, AfterValidator(_as_source_name)]
PipelineName = Annotated[str, AfterValidator(_as_pipeline_name)]
Options = Annotated[dict[str, YamlText], AfterValidator(_no_secret)]
SparkSettings = Annotated[dict[Annotated[str, AfterValidator(_as_setting)], YamlText], AfterValidator(_no_secret)]
Amount = Annotated[str, AfterValidator(sizes.check_size)]
Master = Annotated[str, AfterValidator(_as_master)]
Day = Annotated[datetime.date, BeforeValidator(_as_date)]


def limit_fault(given: Collection[str], malformed: str) -> str:
    """Return why a quarantine has a limit without a quarantine; empty if it has none; given: the keys in the file."""
    if "quarantine_limit" in given and malformed == "fail":
        return "`quarantine_limit` is for `malformed: quarantine`. Add that, or remove the limit"
    return ""


class Part(BaseModel):
    """A mapping of pipeline.yaml; unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
