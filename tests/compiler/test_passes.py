"""Each pass on real queries: passes/<pass>.sql holds SQL with the plan before and after the pass.

`pytest tests/compiler/test_passes.py --regenerate-golden` rewrites the plans; then read the diff.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import RefusedError
from deltafold.compiler.compile import PASSES
from deltafold.compiler.draft import Draft
from deltafold.compiler.explain import draft_lines
from tests.language.schemas import DECLARED, draft

FOLDER = Path(__file__).parent / "passes"
CASE = re.compile(r"-- case: (?P<title>.*)\n(?P<sql>(?:(?!-- ).*\n)*)(?P<rest>(?:(?!-- case: ).*\n)*)")


@dataclass(frozen=True)
class Case:
    """A query, and the recorded lines before and after a pass."""

    title: str
    sql: str
    recorded: str = ""

    @property
    def text(self) -> str:
        return f"-- case: {self.title}\n{self.sql}{self.recorded}"


def cases(name: str) -> list[Case]:
    found = CASE.finditer((FOLDER / f"{name}.sql").read_text())
    return [Case(match["title"], f"{match['sql'].strip()}\n", match["rest"].rstrip("\n") + "\n") for match in found]


def shown(draft: Draft) -> Iterator[str]:
    yield from draft_lines(draft)
    yield from (f"note: {note}" for note in draft.notes)


def around(name: str, before: Draft) -> tuple[list[str], list[str]]:
    """The query before and after one pass; a refusal and the rules of nodes stand for what two passes do."""
    for each in PASSES:
        try:
            after = each(before)
        except RefusedError as error:
            assert each.__name__ == name, f"refused by {each.__name__}: {error}"
            return [*shown(before)], [f"refused: {refusal}" for refusal in error.refusals]
        if each.__name__ == name:
            rules = [f"{'  ' * v.depth}{v.node} | {v.rule}" for v in after.node_rules]
            return [*shown(before)], rules if name == "explain_rules" else [*shown(after)]
        before = after
    raise AssertionError(f"{name} is not a pass")


def commented(head: str, lines: list[str]) -> str:
    return "".join(f"-- {line}\n" for line in (f"{head}:", *(f"  {line}" for line in lines)))


@pytest.mark.parametrize("name", [each.__name__ for each in PASSES])
def test_pass(spark: SparkSession, name: str, regenerate: bool) -> None:
    """A pass changes what its rule names and nothing else."""
    found: list[Case] = []
    for case in cases(name):
        before, after = around(name, draft(spark, case.sql, DECLARED))
        found.append(replace(case, recorded=commented("before", before) + commented("after", after)))
    if regenerate:
        (FOLDER / f"{name}.sql").write_text("\n".join(case.text for case in found))
    assert [case.text for case in found] == [case.text for case in cases(name)]


def test_every_pass_has_cases() -> None:
    """A new pass needs a file, and a file needs its pass."""
    assert {path.stem for path in FOLDER.glob("*.sql")} == {each.__name__ for each in PASSES}
    assert all(len(cases(each.__name__)) >= 2 for each in PASSES)
