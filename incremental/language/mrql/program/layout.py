"""Lay out Spark SQL over lines, for explain."""

from __future__ import annotations

OPENING = "(SELECT "
WORDS = (
    " FROM ",
    " LATERAL VIEW ",
    " WHERE ",
    " GROUP BY ",
    " HAVING ",
    " ORDER BY ",
    " UNION ALL ",
    " INTERSECT ALL ",
    " EXCEPT ALL ",
)


def indented(sql: str) -> str:
    """The text with each SELECT of a FROM on lines of its own; strings stay as they are."""
    made, depths, depth, at, quote = list[str](), list[int](), 0, 0, ""
    while at < len(sql):
        character = sql[at]
        if quote:
            if character == "\\":
                made.append(sql[at : at + 2])
                at += 2
                continue
            quote = "" if character == quote else quote
        elif character in "'`":
            quote = character
        elif sql.startswith(OPENING, at):
            depths.append(depth)
            made.append("(\n" + "  " * len(depths))
        elif character == ")" and depths and depths[-1] == depth - 1:
            depths.pop()
            made.append("\n" + "  " * len(depths))
        elif depth == (depths[-1] + 1 if depths else 0) and (word := started(sql, at)):
            made.append("\n" + "  " * len(depths) + word)
            at += len(word) + 1
            continue
        depth += {"(": 1, ")": -1}.get(character, 0) if not quote else 0
        if not sql.startswith(OPENING, at) or quote:
            made.append(character)
        at += 1
    return "".join(made)


def started(sql: str, at: int) -> str:
    """The clause that begins here, without the space before it."""
    return next((word[1:] for word in WORDS if sql.startswith(word, at)), "")
