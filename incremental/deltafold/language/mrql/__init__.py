"""MRQL, the query language of the papers: text → tree → Spark SQL over the declared sources (D-086).

| module | has |
| --- | --- |
| `syntax/` | the grammar, the tree, and errors with file, line, column and caret; its parse.py alone imports lark |
| `rows/` | types, values, and the rows that an expression is about |
| `expressions` | one function for each form; the larger ones: `selects`, `calls`, `aggregates`, `patterns` |
| `relations`, `repeats` | rows as SELECTs; loops |
| `scalars/` | operators, functions, casts, indexing |
| `program/` | items, sources, and `Mrql`, the query as the API takes it |

Names are typed while they are translated: every value has a type. Spark analyses the resulting SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deltafold.language.query_language import LanguageQuery, QueryLanguage


def _check(file: str, text: str) -> None:
    from deltafold.language.mrql.syntax.parse import parse  # late, as below: it imports lark, and that pyspark
    from deltafold.language.mrql.syntax.spans import Text

    parse(Text(file, text))


def _load(text: str, keys: Mapping[str, Any], file: str, folder: Path) -> LanguageQuery:
    from deltafold.language.mrql.program.query import Mrql

    return Mrql(text, file=file, folder=folder, **keys)


LANGUAGE = QueryLanguage(
    name="mrql", suffix=".mrql", check=_check, load=_load, keys=frozenset({"args", "paths", "loops"})
)
