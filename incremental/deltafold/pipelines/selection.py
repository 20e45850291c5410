"""Select datasets of a project in dbt's grammar: names, tags, paths, what they read and what reads them.

| text | selects |
| --- | --- |
| `orders`, `staging.stg_orders`, `marts.*` | a dataset by its name, by a part of its qualified name, by a pattern |
| `staging`, `path:models/staging`, `models/staging/*.sql` | all of a schema or folder |
| `tag:nightly` | all with a tag |
| `source:raw.orders+` | what reads a source |
| `config.materialized:incremental`, `config.meta.team:shop` | all with a value in their configuration |
| `resource_type:model`, `file:orders.sql`, `group:finance`, `package:shop` | by these |
| `test_type:generic`, `test_name:unique`, the name of a test | tests, which `exclude` leaves out in Dagster |
| `+orders`, `2+orders` | and what it reads, at any depth, or at most this deep |
| `orders+`, `orders+1` | and what reads it |
| `@orders` | what reads it, and all that these read |
| `a b`, or the option twice | the union |
| `tag:nightly,path:models/marts` | the intersection |

The rules are those of dbt's node selection (docs.getdbt.com, «Syntax overview»). Names are compared without case, as
Spark does. A text that matches nothing is refused: dbt warns, and runs less than was meant. So is a method of dbt that
asks for what is not known here, such as the state of an earlier run. Tests are nodes that are only excluded (D-243).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, cast

from deltafold.pipelines.declaration.parsing import DeclarationError, suggest_nearest

if TYPE_CHECKING:
    from deltafold.pipelines.graph import Reads
    from deltafold.pipelines.pipeline import Pipeline
    from deltafold.pipelines.project import Dataset, StreamingTable

Kind = Literal["dataset", "source", "test", "other"]
_ATOM = re.compile(
    r"(?P<at>@)?(?:(?P<up>\d*)\+)?(?:(?P<method>[\w.]+):)?(?P<value>[^+:@]+)(?:\+(?P<down>\d*))?\Z",
    re.DOTALL,
)
_WILDCARD = re.compile(r"[*?\[]")
MOST_LISTED = 12
METHODS = ("fqn", "tag", "path", "file", "source", "resource_type", "package", "group", "test_type", "test_name")
CONFIG = "config."
"""What the method begins with that asks for a value of the configuration: the path of its keys follows."""
UNSUPPORTED = {
    "unit_test": "unit tests are run by dbt alone",
    "state": "no earlier manifest is compared",
    "result": "no earlier run is read",
    "source_status": "freshness is not measured before a run",
    "exposure": "exposures are not read",
    "metric": "metrics are not read",
    "semantic_model": "semantic models are not read",
    "saved_query": "saved queries are not read",
    "access": "the access of models is not read",
    "version": "the latest version of a model is not known",
    "selector": "selectors.yml is not read",
}
"""The other methods of dbt, and why they are refused."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A dataset, or what datasets read, as a selection names it.

    qualified: its name below those of its project and folders, or of its catalog and schema; tags, and path: of its
    file, from the project's folder; reads: the ids of other nodes; dataset: the name of the dataset that is refreshed
    for it, empty for what is not kept (a source, what is inlined); config: as dbt has it; resource_type, package: of a
    node of dbt; generic_test: of a test of dbt, the one that it is an instance of.
    """

    id: str
    qualified: tuple[str, ...]
    kind: Kind = "dataset"
    tags: tuple[str, ...] = ()
    path: str = ""
    reads: tuple[str, ...] = ()
    dataset: str = ""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    resource_type: str = ""
    package: str = ""
    generic_test: str = ""

    @property
    def type(self) -> str:
        """Its type, as dbt names it."""
        return self.resource_type or (self.kind if self.kind in ("source", "test") else "model")

    @property
    def group(self) -> str:
        """The name of its group, empty without one."""
        return str(self.config.get("group") or "")

    @property
    def name(self) -> str:
        """Its name; of a version of a dbt model, with the version."""
        return ".".join(self.qualified[-2:]) if is_version(self.qualified[-1]) else self.qualified[-1]


def is_version(part: str) -> bool:
    """Return whether the last part of a qualified name is the version of a dbt model."""
    return re.fullmatch(r"v\d+", part) is not None


@dataclass
class Nodes:
    """The nodes of a project by id; dashes: what errors put before `select` and `exclude`."""

    by_id: Mapping[str, Node]
    readers: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    dashes: str = "--"

    @classmethod
    def of(cls, nodes: Iterable[Node], dashes: str = "--") -> Nodes:
        """Return nodes with their readers."""
        by_id = {node.id: node for node in nodes}
        readers = {id: set[str]() for id in by_id}
        for node in by_id.values():
            for read in node.reads:
                if read in readers:
                    readers[read].add(node.id)
        return cls(by_id, readers, dashes)

    def select(self, select: Sequence[str], exclude: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the selected datasets; raises DeclarationError for a text that matches nothing."""
        if select:
            _refuse_empty(f"{self.dashes}select", select)
        chosen = self._union(f"{self.dashes}select", select) if select else set(self.by_id)
        chosen -= self.find_excluded(exclude)
        datasets = tuple(node.dataset for node in self.by_id.values() if node.id in chosen and node.dataset)
        if not datasets:
            option, texts = ("select", select) if select else ("exclude", exclude)
            text = f"{self.dashes}{option} {' '.join(texts)}"
            why = self._explain_none(chosen if select else set())
            raise DeclarationError(f"{text}: it selects no dataset: {why}.")
        return datasets

    def find_excluded(self, exclude: Sequence[str]) -> set[str]:
        """Return the ids of what is excluded, tests among them; raises DeclarationError as `select`."""
        return self._union(f"{self.dashes}exclude", exclude)

    def _explain_none(self, chosen: set[str]) -> str:
        """Return why a selection has no dataset, and the fix."""
        if not chosen:
            return "everything is excluded. Exclude less"
        nodes = [self.by_id[id] for id in chosen if self.by_id[id].kind != "test"]
        if not nodes:
            return "these are tests. Select what they test; exclude tests that you do not want"
        first, *others = sorted(nodes, key=lambda node: node.name)
        rest = f"{len(others)} others" if others[1:] else "another one"
        which = f"{first.name} and {rest} are" if others else f"{first.name} is"
        read = f"source:{_source_name(first)}" if first.kind == "source" else first.name
        return f"{which} not kept as a table. Select what reads {first.name}: {read}+"

    def _union(self, option: str, texts: Sequence[str]) -> set[str]:
        """Return the ids that any of the texts selects."""
        terms = [term for text in texts for term in text.split()]
        return set[str]().union(*(self._intersect(option, term) for term in terms))

    def _intersect(self, option: str, term: str) -> set[str]:
        """Return the ids that all atoms of a term select."""
        first, *others = (self._atom(option, atom) for atom in term.split(","))
        chosen = first.intersection(*others)
        if not chosen:
            raise DeclarationError(f"{option} {term}: no dataset matches all parts of it. Leave parts out.")
        return chosen

    def _atom(self, option: str, text: str) -> set[str]:
        """Return the ids that a text without spaces and commas selects, with all tests of these (dbt's `eager`)."""
        match = _ATOM.match(text)
        if match is None or (match["at"] and match["down"] is not None):
            raise DeclarationError(
                f"{option} {text}: it is not a selection. Write a name, +name, name+, tag:TAG or path:FOLDER."
            )
        method, value = match["method"] or _method_of(match["value"]), match["value"]
        matches = _find_method(option, text, method)
        chosen = {node.id for node in self.by_id.values() if matches(node, value.lower())}
        if not chosen:
            raise DeclarationError(f"{option} {text}: it matches no dataset. {self._suggest(method, value)}")
        above = self._walk(chosen, self._reads, match["up"])
        below = self._walk(chosen, self.readers, "" if match["at"] else match["down"])
        reached = above | below if not match["at"] else self._walk(below, self._reads, "")
        tests = (node.id for node in self.by_id.values() if node.kind == "test" and not reached.isdisjoint(node.reads))
        return reached.union(tests)

    @property
    def _reads(self) -> Mapping[str, Collection[str]]:
        return {node.id: [read for read in node.reads if read in self.by_id] for node in self.by_id.values()}

    @staticmethod
    def _walk(start: set[str], edges: Mapping[str, Collection[str]], depth: str | None) -> set[str]:
        """Return nodes with those that edges lead to; depth: the most steps, any number if empty, none if None."""
        most = None if depth == "" else int(depth or 0)
        reached, last = set(start), set(start)
        while last and (most is None or most > 0):
            last = {end for id in last for end in edges[id]} - reached
            reached |= last
            most = None if most is None else most - 1
        return reached

    def _suggest(self, method: str, value: str) -> str:
        """Return a sentence with what was meant."""
        values = {
            "fqn": (node.name for node in self.by_id.values() if node.kind in ("dataset", "other")),
            "tag": (tag for node in self.by_id.values() for tag in node.tags),
            "path": (node.path for node in self.by_id.values() if node.path),
            "source": (_source_name(node) for node in self.by_id.values() if node.kind == "source"),
            "file": (PurePosixPath(node.path).name for node in self.by_id.values() if node.path),
            "resource_type": (node.type for node in self.by_id.values()),
            "package": (node.package for node in self.by_id.values() if node.package),
            "group": (node.group for node in self.by_id.values() if node.group),
            "test_type": (kind for node in self.by_id.values() for kind in _test_kinds(node)),
            "test_name": (node.generic_test for node in self.by_id.values() if node.generic_test),
        }
        if method.startswith(CONFIG):
            known = (_config_of(node, method) for node in self.by_id.values() if node.kind != "source")
            values[method] = (text for value in known for text in _texts_of(value))
        names = set(values[method])
        if not names:
            return f"No dataset has a value of `{method}`. Select by another method."
        is_near = len(names) <= MOST_LISTED or get_close_matches(value, names, n=1)
        return suggest_nearest(value, names) if is_near else "`deltafold dry-run` lists the datasets."


def _find_method(option: str, text: str, method: str) -> Callable[[Node, str], bool]:
    """Return what decides whether a node has a value, for a method; raises DeclarationError for an unknown one."""
    if method in _MATCHES:
        return _MATCHES[method]
    if method.startswith(CONFIG) and method != CONFIG:
        return lambda node, value: any(fnmatchcase(each, value) for each in _texts_of(_config_of(node, method)))
    known = f"Known are {', '.join(METHODS)} and config.KEY"
    if method in UNSUPPORTED:
        raise DeclarationError(f"{option} {text}: `{method}` selects nothing here: {UNSUPPORTED[method]}. {known}.")
    if method == "config":
        raise DeclarationError(f"{option} {text}: it has no key. Write config.KEY:VALUE.")
    raise DeclarationError(
        f"{option} {text}: unknown method `{method}`. {suggest_nearest(method, (*METHODS, 'config.KEY'))}"
    )


def _config_of(node: Node, method: str) -> object:
    """Return the value of a node's configuration at the path of keys in a method, None without one."""
    keys = method.removeprefix(CONFIG).split(".")
    if keys == ["tags"]:
        return node.tags
    value: object = node.config
    for key in keys:
        value = cast("Mapping[str, object]", value).get(key) if isinstance(value, Mapping) else None
    return value


def _texts_of(value: object) -> list[str]:
    """Return what a selection may write for a value: that, one of a list, a key; a bool as `true` or `false`."""
    if isinstance(value, list | tuple | Mapping):
        return [text for each in cast("Iterable[object]", value) for text in _texts_of(each)]
    return [] if value is None else [str(value).lower()]


def _method_of(value: str) -> str:
    """Return the method of a text that names none."""
    return "path" if "/" in value or value.endswith((".sql", ".py")) else "fqn"


def _is_named(node: Node, value: str) -> bool:
    """Return whether a name denotes a node: its last part, or its first ones, with or without its project."""
    parts = [part.lower() for name in node.qualified for part in name.split(".")]
    if node.kind == "source":
        return False
    if is_version(parts[-1]) and value in (parts[-2], f"{parts[-2]}_{parts[-1]}", f"{parts[-2]}.{parts[-1]}"):
        return True
    return parts[-1] == value or any(_begins(each, value.split(".")) for each in (parts, parts[1:], parts[-1:]))


def _begins(parts: list[str], asked: list[str]) -> bool:
    """Return whether a qualified name begins with these parts; from the first pattern on, all of it has to match."""
    plain = next((number for number, part in enumerate(asked) if _WILDCARD.search(part)), len(asked))
    if len(parts) < len(asked) or parts[:plain] != asked[:plain]:
        return False
    return plain == len(asked) or fnmatchcase(".".join(parts[plain:]), ".".join(asked[plain:]))


def _has_tag(node: Node, value: str) -> bool:
    return any(fnmatchcase(tag.lower(), value) for tag in node.tags)


def _is_in_path(node: Node, value: str) -> bool:
    """Return whether a file is at a path, or below it; both may be patterns."""
    path, pattern = PurePosixPath(node.path.lower()), PurePosixPath(value).parts
    return bool(node.path) and any(_fits(each.parts, pattern) for each in (path, *path.parents))


def _fits(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether a path fits a pattern, in which `**` stands for any folders."""
    if not pattern or not parts:
        return not parts and set(pattern) <= {"**"}
    if pattern[0] == "**":
        return _fits(parts, pattern[1:]) or _fits(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])


def _is_source(node: Node, value: str) -> bool:
    parts = [part.lower() for part in node.qualified]
    return node.kind == "source" and any(_begins(each, value.split(".")) for each in (parts, parts[1:]))


def _source_name(node: Node) -> str:
    """Return the name of a source as `source:` takes it."""
    return ".".join(node.qualified[-2:])


def _test_kinds(node: Node) -> tuple[str, ...]:
    """Return the types of a test, as dbt names them; none of another node."""
    return ("data", "generic" if node.generic_test else "singular") if node.kind == "test" else ()


_MATCHES: Mapping[str, Callable[[Node, str], bool]] = {
    "fqn": _is_named,
    "tag": _has_tag,
    "path": _is_in_path,
    "file": lambda node, value: any(
        fnmatchcase(name.lower(), value)
        for name in (PurePosixPath(node.path).name, PurePosixPath(node.path).stem)
        if name
    ),
    "source": _is_source,
    "resource_type": lambda node, value: node.type == value,
    "package": lambda node, value: fnmatchcase(node.package.lower(), value) and bool(node.package),
    "group": lambda node, value: fnmatchcase(node.group.lower(), value) and bool(node.group),
    "test_type": lambda node, value: value in _test_kinds(node),
    "test_name": lambda node, value: fnmatchcase(node.generic_test.lower(), value) and bool(node.generic_test),
}


def read_texts(select: str | Sequence[str] | None, exclude: str | Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the texts of what is selected and excluded, one or several each; none for a `select` of None.

    Raises DeclarationError for an empty `select`: a template that has no value would select everything.
    """
    chosen = (select,) if isinstance(select, str) else select
    if chosen is not None:
        _refuse_empty("select", chosen)
    return chosen or (), (exclude,) if isinstance(exclude, str) else exclude


def _refuse_empty(option: str, texts: Sequence[str]) -> None:
    if not any(text.split() for text in texts):
        raise DeclarationError(f"{option}: it is empty. Leave it out, or name datasets.")


def find_pipelines(pipelines: Mapping[str, Pipeline | DeclarationError]) -> tuple[Node, ...]:
    """Return what selections may name in a folder: pipelines and their sources; an invalid one just by its name."""
    nodes = dict[str, Node]()
    for name, pipeline in pipelines.items():
        if isinstance(pipeline, DeclarationError):
            nodes[name] = Node(id=name, qualified=(name,), dataset=name)
            continue
        sources = {
            source: f"source:{source}" for source in pipeline.declaration.sources if source not in pipeline.below
        }
        nodes |= {id: Node(id=id, qualified=(source,), kind="source") for source, id in sources.items()}
        nodes[name] = Node(
            id=name,
            qualified=(name,),
            tags=pipeline.declaration.tags,
            path=f"{name}/{pipeline.query.path.name}",
            config={"group": pipeline.declaration.group, "policy": pipeline.declaration.policy},
            reads=(*sources.values(), *(below.name for below in pipeline.below.values())),
            dataset=name,
        )
    return tuple(nodes.values())


def find_nodes(reads: Reads) -> tuple[Node, ...]:
    """Return what selections may name in a project whose loader does not list it: what the queries read."""
    graph = reads.graph
    names = {name for read in reads.names.values() for name in read} | graph.nodes.keys()
    return tuple(_node_of(reads, name, graph.nodes.get(name)) for name in sorted(names))


def _node_of(reads: Reads, name: tuple[str, ...], declared: Dataset | StreamingTable | None) -> Node:
    """Return a dataset, streaming table or, if it is not declared, a source."""
    id, read = ".".join(name), tuple(map(".".join, sorted(reads.names.get(name, ()))))
    if declared is None:
        return Node(id=id, qualified=name, kind="source")
    file, folder = declared.origin.file, reads.graph.project.folder
    path = file.relative_to(folder) if file.is_relative_to(folder) else file
    dataset = declared.name if getattr(declared, "kept", True) else ""
    tags = getattr(declared, "tags", ())
    return Node(id=id, qualified=name, tags=tags, path=path.as_posix(), reads=read, dataset=dataset)
