"""MRQL, the query language of the papers: text → tree → Spark SQL with loops.

| module | holds |
| --- | --- |
| `mrql.lark`, `parse.py` | grammar, token filter, tree; the only import of lark |
| `tree.py`, `items.py`, `spans.py` | the tree, and where in which text each part of it is |
"""
