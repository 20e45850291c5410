"""Let users write the body of a step: what happens around its refresh, with resources and a config of their own."""

import functools
import inspect
import keyword
from collections.abc import Callable
from typing import Any

import dagster as dg
from pydantic import Field

from deltafold.algebra.errors import UsageError

Result = dg.MaterializeResult[Any] | dg.AssetCheckResult

Body = Callable[..., Any]
"""A function of `context`, and of a config and resources as of any asset, that yields the results of a step."""


class RefreshConfig(dg.Config):
    """Configuration of the refreshes and checks in one run; the config of a body is derived from it."""

    rebuild: bool = Field(
        default=False,
        description="Rebuild the state from the sources, as after a change of the query. In a Spark pipeline this also "
        "empties the streaming tables that are selected, and reads their streams from the start.",
    )
    sample: str | None = Field(
        default=None, description="The share of keys to compare, such as 1%; by default as the pipeline declares."
    )


def complete_body(step: str, body: Body, resource_key: str | None) -> Body:
    """Return a body that also has the parameters of every step: the config, and the resource with the Spark.

    Dagster takes no `required_resource_keys` for a function that has resources among its parameters.

    Raises:
        UsageError: its first parameter is not `context`, its config is not a RefreshConfig, or the resource has a name
            that no parameter may have.
    """
    if resource_key is not None and not _is_parameter(resource_key):
        raise UsageError(f"resource_key `{resource_key}`: it is not the name of a parameter. Rename the resource.")
    own = inspect.signature(body, eval_str=True).parameters
    if next(iter(own), None) != "context":
        raise UsageError(f"step {step}: its body does not take `context`. Make that the first parameter.")
    config = own["config"].annotation if "config" in own else RefreshConfig
    if not (inspect.isclass(config) and issubclass(config, RefreshConfig)):
        raise UsageError(
            f"step {step}: the config of its body has no `rebuild` and `sample`. Derive its class from "
            "deltafold.dagster.RefreshConfig."
        )
    ours: dict[str, Any] = {"config": RefreshConfig}
    if resource_key is not None:
        ours[resource_key] = dg.ResourceParam[Any]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind)
        for name, kind in ours.items()
        if name not in own
    ]

    @functools.wraps(body)
    def run(context: dg.AssetExecutionContext, **given: Any) -> Any:
        results = body(context, **{name: value for name, value in given.items() if name in own})
        if results is None:
            why = f"step {step}: its body refreshed nothing. Write `yield from refresh_assets(context)` in it."
            raise dg.Failure(why, allow_retries=False)
        return results

    parameters = [*own.values(), *added]
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {
        each.name: each.annotation for each in parameters if each.annotation is not inspect.Parameter.empty
    }
    return run


def _is_parameter(name: str) -> bool:
    """Return whether a parameter besides `context` and `config` may have this name."""
    return name.isidentifier() and not keyword.iskeyword(name) and name not in ("context", "config")
