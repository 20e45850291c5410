"""What loops answer, by the textbook and from nothing: breadth-first search, paths, Dijkstra, union-find."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any

Edge = tuple[Any, ...]


def neighbours(edges: Iterable[Edge]) -> dict[Any, list[Edge]]:
    """The edges by where they start; NULL is no node that an edge can start from."""
    found = defaultdict[Any, list[Edge]](list)
    for edge in edges:
        if edge[0] is not None:
            found[edge[0]].append(edge)
    return found


def reachable(starts: Iterable[Any], edges: Iterable[Edge]) -> set[Any]:
    """Breadth-first search."""
    near, seen = neighbours(edges), set(starts)
    queue = deque(seen)
    while queue:
        for edge in near.get(queue.popleft(), ()):
            if edge[1] not in seen:
                seen.add(edge[1])
                queue.append(edge[1])
    return seen


def closure(edges: Iterable[Edge]) -> set[tuple[Any, Any]]:
    """Every pair that a path of one edge or more connects."""
    listed = list(edges)
    near = neighbours(listed)
    starts = {edge[0] for edge in listed}
    return {(start, end) for start in starts for end in reached(start, listed, near)}


def reached(start: Any, edges: list[Edge], near: Mapping[Any, list[Edge]]) -> set[Any]:
    """Where the paths from a node end; those from NULL begin with an edge from NULL."""
    return reachable((edge[1] for edge in edges if edge[0] == start), [e for each in near.values() for e in each])


def levels(starts: Mapping[Any, int], edges: Mapping[Edge, int]) -> Counter[tuple[Any, int]]:
    """How many paths of each length lead to each node of an acyclic graph, by (node, length)."""
    found, level = Counter[tuple[Any, int]](), 0
    near, now = neighbours(edges), Counter(dict(starts))
    while now:
        found.update({(node, level): count for node, count in now.items()})
        after = Counter[Any]()
        for node, count in now.items():
            for edge in near.get(node, ()):
                after[edge[1]] += count * edges[edge]
        now, level = after, level + 1
    return found


def distances(starts: Mapping[Any, int], edges: Iterable[Edge]) -> dict[Any, int]:
    """Dijkstra's algorithm; starts: nodes with the distances they begin with; edges: (from, to, length)."""
    near, done = neighbours(edges), dict[Any, int]()
    heap = [(distance, repr(node), node) for node, distance in starts.items()]
    heapq.heapify(heap)
    while heap:
        distance, _, node = heapq.heappop(heap)
        if node not in done:
            done[node] = distance
            for edge in near.get(node, ()):
                heapq.heappush(heap, (distance + edge[2], repr(edge[1]), edge[1]))
    return done


def components(edges: Iterable[Edge]) -> dict[Any, Any]:
    """Union-find: the least node of the component of each node that has an edge; one without a name is by itself."""
    parent = dict[Any, Any]()

    def root(node: Any) -> Any:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for edge in edges:
        one, other = root(edge[0]), root(edge[1])
        if None not in edge[:2]:
            parent[max(one, other)] = min(one, other)
    return {node: root(node) for node in parent}


def same_generation(parents: Iterable[Edge]) -> set[tuple[Any, Any]]:
    """Pairs of nodes that some common ancestor has at the same distance; parents: (child, parent)."""
    listed = list(parents)
    down = neighbours((edge[1], edge[0]) for edge in listed)
    seen = {(node, node) for edge in listed for node in edge}
    queue = deque(seen)
    while queue:
        one, other = queue.popleft()
        found = {(left, right) for _, left in down.get(one, ()) for _, right in down.get(other, ())}
        queue.extend(found - seen)
        seen |= found
    return seen
