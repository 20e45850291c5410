"""Check the monoids of pipeline.yaml."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, model_validator

from deltafold.pipelines.declaration.values import Part

MONOID_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


def _as_sql(value: object) -> object:
    """Convert numbers and truth values to SQL."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _as_name(name: str) -> str:
    if not MONOID_NAME.match(name):
        raise ValueError("invalid monoid name. Use a letter followed by letters, digits and _, at most 63 in all")
    return name


SqlText = Annotated[str, BeforeValidator(_as_sql)]
MonoidName = Annotated[str, AfterValidator(_as_name)]


class MonoidPart(Part):
    """A merge of values in SQL, as in `Warehouse.monoid`; Spark checks it when the pipeline is opened."""

    type: str
    zero: SqlText
    plus: SqlText
    unit: SqlText | None = None
    inverse: SqlText | None = None
    of: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> MonoidPart:
        if empty := next((name for name, text in self if isinstance(text, str) and not text.strip()), None):
            raise ValueError(f"`{empty}` is empty. Write SQL there, or remove it")
        return self
