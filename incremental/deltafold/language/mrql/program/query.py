"""A query in MRQL, as the API takes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

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
from deltafold.language.mrql.program.running import lay_out, run_program
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.spans import Text
from deltafold.language.mrql.syntax.tree import Node
from deltafold.language.query_language import LanguageQuery, Schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Mrql(LanguageQuery):
    """A program of MRQL, whose last query (or that of the number `item`, counted from 1) is the view.

    args: the values of `args[0]`, …; paths: the declared source for each path of a `source(…)` that has not the name of
    its definition or file; loops: the arguments of iterate for a `repeat`, by its name, where no limit ends it; file:
    the name that errors cite; folder: the one that paths of includes are relative to.
    """

    language: ClassVar[str] = "MRQL"
    guard: ClassVar[str] = "guard the expression (if … then … else …)"  # as error messages advise it

    text: str
    _: KW_ONLY
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
        """The names that its sources may have, in lower case."""
        query = choose_query(self.items, self.item, self._text)
        names = find_used_names(self.items, query)
        for item in self.items:
            if item is query or getattr(item, "name", None) in names:
                for node in descendants(item):
                    if isinstance(node, T.FunctionCall) and is_source(node):
                        path = path_of(node, self.args)
                        names.add(self.paths.get(path, PurePosixPath(path).stem))
        return frozenset(name.lower() for name in names)

    def program(self, declared: Collection[str], schema: Schemas) -> Translated:
        """Return the query as Spark SQL over its declared sources, by their schemas. Raises QueryError."""
        query = choose_query(self.items, self.item, self._text)
        program = ProgramTranslation(Tables(tuple(declared), schema, self.paths), self.args, self.loops)
        try:
            return program.translate(self.items, query)
        except RecursionError:
            raise query.span.error("this is nested too deeply. Define its parts by names of their own.") from None

    def evaluate(self, spark: SparkSession, declared: Collection[str], schema: Schemas) -> DataFrame:
        """Return the answer, analysed. Raises QueryError."""
        return run_program(spark, self.program(declared, schema))

    def show(self, declared: Collection[str], schema: Schemas) -> str:
        """Return the equivalent PySpark program, for people."""
        return lay_out(self.program(declared, schema))

    @property
    def _text(self) -> Text:
        return Text(self.file, self.text)
