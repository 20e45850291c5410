"""Show a translated program as the PySpark that it is, for explain."""

from __future__ import annotations

from collections.abc import Sequence

from deltafold.language.mrql.program.definitions import Translated
from deltafold.language.mrql.repeats import RepeatLoop

OPENING_SELECT = "(SELECT "
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


def lay_out(program: Translated) -> str:
    """Write the whole program."""
    return "\n".join([*map(loop_text, program.loops), call(program.sql)])


def loop_text(loop: RepeatLoop) -> str:
    """Write a loop: its start, its step, and its end."""
    ends = "".join(f", {name}={value!r}" for name, value in loop.options.items())
    function = "fixpoint" if loop.least else "iterate"
    step = f"lambda {', '.join(loop.given)}: {frame_or_tuple(loop.steps)}"
    return f"{', '.join(loop.names)} = {function}({frame_or_tuple(loop.starts)}, {step}{ends})"


def frame_or_tuple(texts: Sequence[str]) -> str:
    """Write one frame, or a tuple of them."""
    calls = ", ".join(map(call, texts))
    return calls if len(texts) == 1 else f"({calls})"


def call(sql: str) -> str:
    """Return the frame of a text."""
    return f'spark.sql("""\n{indent(sql)}\n""")'


def indent(sql: str) -> str:
    """Write each SELECT of a FROM on lines of its own; strings stay as they are."""
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
        elif sql.startswith(OPENING_SELECT, at):
            depths.append(depth)
            made.append("(\n" + "  " * len(depths))
        elif character == ")" and depths and depths[-1] == depth - 1:
            depths.pop()
            made.append("\n" + "  " * len(depths))
        elif depth == (depths[-1] + 1 if depths else 0) and (word := find_clause(sql, at)):
            made.append("\n" + "  " * len(depths) + word)
            at += len(word) + 1
            continue
        depth += {"(": 1, ")": -1}.get(character, 0) if not quote else 0
        if not sql.startswith(OPENING_SELECT, at) or quote:
            made.append(character)
        at += 1
    return "".join(made)


def find_clause(sql: str, at: int) -> str:
    """Return the clause that begins here, without the space before it."""
    return next((word[1:] for word in WORDS if sql.startswith(word, at)), "")
