"""Choose the datasets of a project that a run refreshes, and those that it rebuilds."""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.pipelines.declaration.parsing import DeclarationError, suggest_nearest
from deltafold.pipelines.graph import Parts, Reads
from deltafold.pipelines.selection import Nodes, find_nodes


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The datasets that a run refreshes and rebuilds: all, if none is named.

    refresh, full_refresh: names, as of `spark-pipelines run`; select, exclude: dbt's texts (`selection`); exactly: the
    names of those that an orchestrator asks for.
    """

    refresh: tuple[str, ...] = ()
    full_refresh: tuple[str, ...] = ()
    full_refresh_all: bool = False
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exactly: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.only and (self.refresh or self.full_refresh):
            raise DeclarationError(
                "--select and --exclude: they cannot be combined with --refresh or --full-refresh. Rebuild what is "
                "selected with --full-refresh-all."
            )
        if self.full_refresh_all and (self.refresh or self.full_refresh):
            raise DeclarationError(
                "--full-refresh-all: it cannot be combined with --refresh or --full-refresh. Remove one of them."
            )

    @property
    def only(self) -> bool:
        """Whether what the chosen datasets read is not refreshed, too, but read as it is: dbt's rule."""
        return bool(self.select or self.exclude or self.exactly)

    def work(self, reads: Reads) -> dict[Parts, bool]:
        """Return whether each chosen dataset is rebuilt; the events of AUTO CDC flows are chosen with their tables.

        Raises DeclarationError for a name that is not declared.
        """
        chosen, nodes = self._choose(reads), reads.graph.nodes
        work = dict[Parts, bool]()
        for key, full in chosen.items():
            events = getattr(nodes[key], "events", None)
            if events is not None and (kept := reads.graph.key(events)) in reads.read_nodes(key):
                work[kept] = full or chosen.get(kept, False)
            work[key] = full or work.get(key, False)
        return work

    def _choose(self, reads: Reads) -> dict[Parts, bool]:
        """Return the datasets that the user names, or all."""
        graph, nodes = reads.graph, reads.order
        if self.exactly:
            keys = {graph.complete(graph.parse(name)) for name in self.exactly}
            return {key: self.full_refresh_all for node in nodes if (key := graph.key(node)) in keys}
        if self.only:
            selectable = graph.project.nodes if graph.project.nodes is not None else find_nodes(reads)
            chosen = Nodes.of(selectable).select(self.select, self.exclude)
            keys = {graph.complete(graph.parse(name)) for name in chosen}
            return {key: self.full_refresh_all for node in nodes if (key := graph.key(node)) in keys}
        if not self.refresh and not self.full_refresh:
            return {graph.key(node): self.full_refresh_all for node in nodes}
        names = {graph.key(node): node.name for node in nodes}
        work = dict[Parts, bool]()
        for asked, full in ((self.refresh, False), (self.full_refresh, True)):
            for name in asked:
                key = graph.complete(graph.parse(name))
                if key not in names:
                    near = suggest_nearest(name, list(names.values()))
                    raise DeclarationError(f"{graph.project.name}: it has no dataset `{name}`. {near}")
                work[key] = full
        return work
