"""MRQL, the query language of the papers: text → tree → Spark SQL over the declared sources.

| module | holds |
| --- | --- |
| `syntax/` | grammar, tree, errors with file, line, column and caret; its parse.py alone imports lark |
| `rows/` | types, values, and the rows that an expression is about |
| `expressions` | one function for each form; `comprehensions`, `groups`, `arrays`: select |
| `scalars/` | operators, functions, casts, indexing, XML |
| `patterns`, `calls`, `aggregates`, `relations`, `repeats` | the other forms |
| `program/` | items, sources, and `Mrql`, the query as the API takes it |

A name is typed when it is translated: a type is a part of every value. Spark analyses what comes out.
"""
