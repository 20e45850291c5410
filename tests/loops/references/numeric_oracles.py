"""What numeric loops answer, in plain Python: power iteration, Lloyd's algorithm, multiplicative updates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import fsum, sqrt

Point = tuple[float, float]


def rank_step(known: Mapping[int, float], nodes: Iterable[int], edges: Sequence[tuple[int, int]]) -> dict[int, float]:
    """One step of PageRank without the division by the number of nodes; edges to unknown nodes lose their share."""
    degree, given = Counter(src for src, _ in edges), defaultdict[int, float](float)
    for src, dst in edges:
        if src in known:
            given[dst] += 0.85 * known[src] / degree[src]
    return {node: 0.15 + given[node] for node in nodes}


def ranks(nodes: Sequence[int], edges: Sequence[tuple[int, int]], steps: int) -> dict[int, float]:
    """PageRank after so many steps; after 500 it is the fixpoint to the last digits."""
    known = dict.fromkeys(nodes, 1.0)
    for _ in range(steps):
        known = rank_step(known, nodes, edges)
    return known


def mean_difference(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """The mean of the absolute differences over all keys."""
    keys = one.keys() | other.keys()
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in keys) / max(1, len(keys))


def lloyd(points: Sequence[Point], centers: Sequence[Point], steps: int) -> set[Point]:
    """Centers after so many steps, by exact sums; ties go to the least center, and one without points vanishes."""
    found = set(centers)
    for _ in range(steps):
        members = defaultdict[Point, list[Point]](list)
        for x, y in points:
            near = min(found, key=lambda c: ((x - c[0]) * (x - c[0]) + (y - c[1]) * (y - c[1]), c))
            members[near].append((x, y))
        found = {
            (fsum(x for x, _ in each) / len(each), fsum(y for _, y in each) / len(each)) for each in members.values()
        }
    return found


Cells = dict[tuple[int, int], float]


def factor_step(v: Cells, w: Cells, h: Cells) -> tuple[Cells, Cells]:
    """One multiplicative update of both factors from the old ones."""
    turned_h, turned_w = turned(h), turned(w)
    return (
        scaled(w, product(v, turned_h), product(w, product(h, turned_h))),
        scaled(h, product(turned_w, v), product(product(turned_w, w), h)),
    )


def product(a: Cells, b: Cells) -> Cells:
    found = defaultdict[tuple[int, int], float](float)
    for (i, k), x in a.items():
        for (m, j), y in b.items():
            if k == m:
                found[i, j] += x * y
    return dict(found)


def turned(a: Cells) -> Cells:
    return {(j, i): x for (i, j), x in a.items()}


def scaled(a: Cells, up: Cells, down: Cells) -> Cells:
    return {cell: x * sqrt(up[cell] / down[cell]) for cell, x in a.items()}
