"""Land a range of historical partitions.

Each group of partitions is one commit, and unchanged partitions are skipped, so an interrupted backfill continues when
it is run again. The refresh that follows processes all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.declaration.parsing import DeclarationError

if TYPE_CHECKING:
    from deltafold.api import Landing, Warehouse

PARTITIONS_AT_ONCE = 32


def land_range(
    pipeline: Pipeline, warehouse: Warehouse, first: str, last: str, say: Callable[[str], None]
) -> tuple[Landing, ...]:
    """Land every partition of a range that has files, or was landed before and has none; one landing per group.

    first, last: both included, compared as text, as days sort. Raises DeclarationError if the range is empty.
    """
    low, high = check_range(pipeline, first, last)
    chosen = {name: keys_between(warehouse.partitions(name), low, high) for name in pipeline.partitioned}
    if not any(chosen.values()):
        raise DeclarationError(f"{pipeline.name}: no source has a partition from {low} to {high}. Check its folders.")
    whole = [name for name in pipeline.landed if name not in chosen]
    size = PARTITIONS_AT_ONCE
    groups = [(name, part[i : i + size]) for name, part in chosen.items() for i in range(0, len(part), size)]
    found = [warehouse.land(name) for name in whole]
    for number, (name, part) in enumerate(groups, 1):
        say(f"{pipeline.name}: landing {name} from {part[0]} to {part[-1]} ({number} of {len(groups)})")
        found.append(warehouse.land(name, part))
    return tuple(found)


def check_range(pipeline: Pipeline, first: str, last: str) -> tuple[str, str]:
    """Return the ends of a range of partitions; raises DeclarationError for one that no partition can be in."""
    low, high = pipeline.check_partition(first), pipeline.check_partition(last)
    if high < low:
        raise DeclarationError(f"{pipeline.name}: {high} is before {low}. Exchange --from and --to.")
    return low, high


def keys_between(partitions: Sequence[str], low: str, high: str) -> list[str]:
    """Return the partition keys in a range."""
    return [partition for partition in partitions if low <= partition <= high]
