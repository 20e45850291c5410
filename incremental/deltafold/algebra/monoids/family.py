"""Infer the accumulator of each of Spark's aggregate functions from its name and the types of its arguments."""

from __future__ import annotations

from deltafold.algebra.monoids.extremes import bitwise, exclusive_or, extreme, extreme_by
from deltafold.algebra.monoids.kinds import Accumulator, Mergeable, store_answer
from deltafold.algebra.monoids.moments import co_moments, integer_moments, moments
from deltafold.algebra.monoids.sums import SMALL_INTEGERS, average, count_monoid, total
from deltafold.algebra.plan import Call


def infer_accumulator(call: Call) -> Accumulator:
    """Return the monoid of an aggregate call; if it has none, its groups are recomputed and its answer is stored."""
    return infer_call_monoid(call) or store_answer(call.column.type)


def infer_call_monoid(call: Call) -> Mergeable | None:
    """Return the monoid of an aggregate call, None if it is DISTINCT or does not merge."""
    return None if call.distinct else infer_function_monoid(call)


def infer_function_monoid(call: Call) -> Mergeable | None:
    """Return the monoid of the function that is called, whether or not over distinct values."""
    if call.declared is not None:
        return call.declared.accumulator()
    types = tuple(column.type for column in call.arguments)
    return infer_monoid(call.function, types, call.mode, len(call.buffers))


def infer_monoid(function: str, types: tuple[str, ...], mode: str, buffers: int) -> Mergeable | None:
    """Return the monoid of a Spark aggregate, None if it does not merge.

    function: Spark's class name in lower case; types: Spark's names of the argument types; mode: ansi, legacy or try;
    buffers: the number of buffer columns of Spark's aggregate.
    """
    match function:
        case "count":
            return count_monoid(types)
        case "sum":
            return total(types[0], mode, buffers)
        case "average":
            return average(types[0])
        case "min" | "max":
            return extreme(function, types[0])
        case "minby" | "maxby":
            return extreme_by(function, types[0], types[1])
        case "bitandagg" | "bitoragg":
            return bitwise(function, types[0])
        case "bitxoragg":
            return exclusive_or(types[0])
        case "stddevsamp" | "stddevpop" | "variancesamp" | "variancepop":
            return integer_moments() if types[0] in SMALL_INTEGERS else moments()
        case "covsample" | "covpopulation" | "corr":
            return co_moments(function == "corr")
        case _:
            return None
