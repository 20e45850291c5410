"""Let users write the body of a step: what happens around its refresh, with resources and a config of their own.

Dagster takes a step of which any subset can be selected for done, whatever its body yields. So a body that breaks off,
or drops a result, fails here: otherwise a refreshed dataset, or a check that did not pass, would be missing in a green
run (D-242).
"""

import functools
import inspect
import keyword
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary

import dagster as dg
from pydantic import Field

from deltafold.algebra.errors import UsageError

Result = dg.MaterializeResult[Any] | dg.AssetCheckResult

Body = Callable[..., Any]
"""A function of `context`, and of a config and resources as of any asset, that yields the results of a step."""


UNVERSIONED = (
    "made a result without a data version, so readers would take an unchanged dataset for a new one. Give it "
    "data_version=result.data_version, or add metadata by context.add_asset_metadata."
)


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
        UsageError: its first parameter is not `context`, it is asynchronous, its config is not a RefreshConfig, or the
            resource has a name that no parameter may have.
    """
    if resource_key is not None and not _is_parameter(resource_key):
        raise UsageError(f"resource_key `{resource_key}`: it is not the name of a parameter. Rename the resource.")
    own = inspect.signature(body, eval_str=True).parameters
    if next(iter(own), None) != "context":
        raise UsageError(f"step {step}: its body does not take `context`. Make that the first parameter.")
    if inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body):
        raise UsageError(f"step {step}: its body is asynchronous. Write `def` instead of `async def`.")
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
    def run(context: dg.AssetExecutionContext, **given: Any) -> Iterator[Any]:
        results = body(context, **{name: value for name, value in given.items() if name in own})
        yielded = set[_Key]()
        for result in _each(results):
            yielded.add(_key_of(result, context))
            if (
                isinstance(result, dg.MaterializeResult)
                and cast("dg.MaterializeResult[Any]", result).data_version is None
            ):
                raise dg.Failure(f"step {step}: its body {UNVERSIONED}", allow_retries=False)
            yield result
        if fault := _find_fault(_MADE.get(context), yielded):
            raise dg.Failure(f"step {step}: its body {fault}", allow_retries=False)

    parameters = [*own.values(), *added]
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {
        each.name: each.annotation for each in parameters if each.annotation is not inspect.Parameter.empty
    }
    return run


def _is_parameter(name: str) -> bool:
    """Return whether a parameter besides `context` and `config` may have this name."""
    return name.isidentifier() and not keyword.iskeyword(name) and name not in ("context", "config")


_Key = tuple[dg.AssetKey | None, str | None]
"""The asset of a result, and the name of the check if it is one's."""


@dataclass
class _Made:
    """The results that `refresh_assets` has made in one run of a step; ended: whether these are all."""

    keys: set[_Key] = field(default_factory=set[_Key])
    ended: bool = False


_MADE: WeakKeyDictionary[dg.AssetExecutionContext, _Made] = WeakKeyDictionary()


def record_results(context: dg.AssetExecutionContext, results: Iterator[Result]) -> Iterator[Result]:
    """Yield the results of a refresh, which the body of its step has to yield, too."""
    made = _MADE.setdefault(context, _Made())
    made.ended = False
    for result in results:
        made.keys.add(_key_of(result, context))
        yield result
    made.ended = True


def _each(results: object) -> Iterable[Any]:
    """Return what a body yields, or returns: several results, one, or none."""
    if results is None:
        return ()
    is_several = isinstance(results, Iterator | Sequence) and not hasattr(cast(object, results), "_fields")
    return cast("Iterable[Any]", results) if is_several else (cast(Any, results),)


def _key_of(result: Any, context: dg.AssetExecutionContext) -> _Key:
    """Return what a result is of; one of a step of one asset need not name it."""
    if isinstance(result, dg.Output):
        return context.assets_def.keys_by_output_name.get(cast("dg.Output[Any]", result).output_name), None
    key: dg.AssetKey | None = getattr(result, "asset_key", None)
    keys = context.assets_def.keys
    return key or (next(iter(keys)) if len(keys) == 1 else None), getattr(result, "check_name", None)


def _find_fault(made: _Made | None, yielded: set[_Key]) -> str | None:
    """Return what is wrong with the results of a body, and the fix; None if nothing is."""
    if made is None:
        return "refreshed nothing. Write `yield from refresh_assets(context)` in it."
    if not made.ended:
        return (
            "ended before refresh_assets did. Write `yield from refresh_assets(context)` in it, or let an error pass."
        )
    if dropped := made.keys - yielded:
        names = (" ".join(filter(None, (key.to_user_string() if key else "", check))) for key, check in dropped)
        return f"left out results of refresh_assets: {', '.join(sorted(names))}. Yield each of them."
    return None
