"""A query in MRQL, as the API takes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from deltafold.language.mrql.program.definitions import (
    ProgramTranslation,
    Translated,
    check_unique_names,
    choose_query,
    descendants,
    find_used_names,
    items_of,
)
from deltafold.language.mrql.program.inputs import Tables, is_source, path_of
from deltafold.language.mrql.program.layout import lay_out
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.spans import Text
from deltafold.language.mrql.syntax.tree import Node

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Mrql:
    """A program of MRQL, whose last query (or that of the number `item`, counted from 1) is the view.

    args: what `args[0]`, … stand for; paths: the declared source that each path of a `source(…)` stands for, where it
    is not the name of the definition or of the file; loops: how a `repeat` ends, by its name, as arguments of iterate;
    file: the name that errors cite; folder: where includes start.
    """

    text: str
    args: tuple[str, ...] = ()
    item: int | None = None
    paths: Mapping[str, str] = field(default_factory=dict[str, str])
    loops: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    file: str = "query.mrql"
    folder: Path | None = None

    @cached_property
    def items(self) -> tuple[Node, ...]:
        """Its items, includes read. Raises QueryError for a text that does not parse, or defines a name twice."""
        items = tuple(items_of(self._text, self.folder))
        check_unique_names(items)
        return items

    @property
    def names(self) -> frozenset[str]:
        """What its sources may be called, in lower case."""
        query = choose_query(self.items, self.item, self._text)
        found = find_used_names(self.items, query)
        for item in self.items:
            if item is query or getattr(item, "name", None) in found:
                for node in descendants(item):
                    if isinstance(node, T.FunctionCall) and is_source(node):
                        path = path_of(node, self.args)
                        found |= {self.paths.get(path, PurePosixPath(path).stem)}
        return frozenset(name.lower() for name in found)

    def program(self, declared: Collection[str], schema: Callable[[str], StructType | None]) -> Translated:
        """Return the query as Spark SQL over its declared sources, by their schemas. Raises QueryError."""
        query = choose_query(self.items, self.item, self._text)
        program = ProgramTranslation(Tables(tuple(declared), schema, self.paths), self.args, self.loops)
        try:
            return program.translate(self.items, query)
        except RecursionError:
            raise query.span.error("this is nested too deeply. Define its parts by names of their own.") from None

    def show(self, declared: Collection[str], schema: Callable[[str], StructType | None]) -> str:
        """Return the equivalent PySpark program, for people."""
        return lay_out(self.program(declared, schema))

    @property
    def _text(self) -> Text:
        return Text(self.file, self.text)
