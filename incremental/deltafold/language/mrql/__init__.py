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
