"""Print the stage of a loop."""

from __future__ import annotations

from deltafold.algebra.loops import LoopState


def stage_lines(stage: LoopState) -> list[str]:
    """Return what a loop stores and how a refresh changes it."""
    columns, keys = (", ".join(column.name for column in each) for each in (stage.columns, stage.keys))
    if stage.levelled:
        stored = f"rows ({columns}) by level, with the number of derivations at each"
        order = "removals first, then additions" if stage.traits.is_set else "levels in rising order"
        return [f"{stage.name}: recursion ({stage.kind}), {order}, at most {stage.limit:,} rounds", f"  keeps {stored}"]
    if stage.clusters is not None:
        return [
            f"{stage.name}: {stage.limit} steps of k-means, by the centers of the last evaluation and their margins",
            f"  keeps the centers ({columns}) and the sums of their points in each step, and the answer",
            f"  keeps the points with their margins in {stage.points}, from the first refresh on that needs them: "
            "those that are not much nearer to their center than to the next one are read again when centers move",
        ]
    if stage.tolerance is None:
        first = f"{stage.name}: {stage.limit} steps, evaluated from the start ({stage.replayed})"
        return [first, f"  keeps the answer ({columns})"]
    warm, carried = (", ".join(column.name for column in each) for each in (stage.warm, stage.carried))
    lines = [
        f"{stage.name}: at most {stage.limit} steps, until one changes no more than {stage.tolerance.allowed:g} "
        f"({stage.tolerance.norm} norm)",
        f"  keeps one row for each ({keys}), and starts from its {warm}",
    ]
    return [*lines, f"  takes {carried} from its start"] if carried else lines
