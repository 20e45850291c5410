"""Trees and translations of some examples, in golden.txt; --regenerate-golden rewrites it, then read the diff."""

from __future__ import annotations

from pathlib import Path

from deltafold.api import Mrql
from tests.mrql.examples import ALL, ARGUMENTS
from tests.mrql.schemas import SCHEMAS

GOLDEN = Path(__file__).with_name("golden.txt")
TITLES = (
    "papers: averages by key", "papers: join and average", "papers: nested sum", "papers: matrix product",
    "flat: order with limit", "groups: the first of a group", "nested: two deep, to the outermost",
    "nested: the closest", "arrays: group within", "defined: a data type",
)  # fmt: skip


def shown(title: str) -> str:
    program = Mrql(ALL[title], args=ARGUMENTS)
    tree = "\n".join(map(repr, program.items))
    return f"//// {title}\n{ALL[title].strip()}\n\n{tree}\n\n{program.show(list(SCHEMAS), SCHEMAS.get)}\n"


def test_trees_and_translations(regenerate: bool) -> None:
    """Protects from a change of the translation that nobody meant: its column names are part of kept states."""
    found = "\n".join(map(shown, TITLES))
    if regenerate:
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


def test_a_program_gives_the_same_text_in_every_translation() -> None:
    for text in ALL.values():
        assert len({Mrql(text, args=ARGUMENTS).program(list(SCHEMAS), SCHEMAS.get).sql for _ in range(2)}) == 1
