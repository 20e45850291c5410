"""Check the keys of pipeline.yaml for a query in MRQL: arguments, sources of its paths, ends of its loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, PositiveFloat, model_validator

from deltafold.pipelines.declaration.constraints import Columns


def _as_text(value: object) -> object:
    """Convert numbers to text: arguments of a program are strings."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class LoopPart(BaseModel):
    """When a `repeat` ends: a residual, or an error with a contraction, by the numbers of rows with equal key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: Columns
    residual: PositiveFloat | None = None
    error: PositiveFloat | None = None
    contraction: PositiveFloat | None = None
    norm: Literal["sum", "mean", "max"] = "max"

    @model_validator(mode="after")
    def _one_end(self) -> LoopPart:
        if (self.residual is None) == (self.error is None) or (self.error is None) != (self.contraction is None):
            raise ValueError(
                "the loop has no end, or several: it is `residual`, or `error` with `contraction`. Write one of them"
            )
        return self


class ProgramPart(BaseModel):
    """The keys of pipeline.yaml that are for query.mrql alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    args: tuple[Annotated[str, BeforeValidator(_as_text)], ...] = ()
    paths: dict[str, str] = {}
    loops: dict[str, LoopPart] = {}

    @property
    def ends(self) -> dict[str, dict[str, Any]]:
        """Return how each loop ends, as arguments of `iterate`."""
        return {name: part.model_dump(exclude_none=True) for name, part in self.loops.items()}


def check_paths(paths: Mapping[str, str], sources: Mapping[str, object]) -> None:
    """Raise ValueError, with a fix, for a path whose source is not declared."""
    if missing := next((source for source in paths.values() if source not in sources), None):
        raise ValueError(f"`paths` names `{missing}`, which is not a declared source. Declare it")
