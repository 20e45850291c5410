"""The compiler as a whole: what it hands on, which answer columns it takes, and that it needs no Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from incremental.algebra.errors import QueryError
from incremental.algebra.plan import StateRead
from incremental.algebra.traversal import walk
from incremental.compiler.compile import check_outputs, compiled
from tests.compiler.plans import K, Q, T, V, call, grouped, where

PROJECT = Path(__file__).resolve().parents[2]


def test_program_of_a_group_by() -> None:
    """State split off, outputs and declarations kept."""
    program = compiled(where(grouped(T, (K,), call("s", "sum", V)), "s > 1"), ((K, "Key"),), "f", [], frozenset("x"))
    assert program.sources == ("t",)
    assert program.outputs == ((K, "Key"),)
    assert program.invariant == {"x"}
    assert [state.name for state in program.states] == ["state_1"]
    assert [n.state for n in walk(program.answer) if isinstance(n, StateRead)] == ["state_1"]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (
            ("a", "b", "A"),
            "the answer has two columns named 'a' and 'A', which are one name: give one of them another name with AS",
        ),
        (("a", "__x"), "the answer column '__x' starts with '__', which is reserved: rename it with AS"),
        ((), "the answer has no columns: select at least one"),
    ],
)
def test_answer_columns_a_table_cannot_have(names: tuple[str, ...], sentence: str) -> None:
    """Delta would fail in the middle of the first refresh."""
    with pytest.raises(QueryError) as refused:
        check_outputs(tuple((Q, name) for name in names))
    assert str(refused.value) == sentence


def test_answer_columns_a_table_can_have() -> None:
    """Spaces, parentheses and other letters are fine."""
    check_outputs(((K, "sum(v)"), (Q, "größe (cm)"), (V, "_x")))


def test_these_tests_need_no_spark() -> None:
    """The compiler is pure Python: all tests of this folder and of the monoid family pass where pyspark cannot load."""
    program = (
        "import sys, pytest\n"
        "for name in ('pyspark', 'py4j', 'delta'): sys.modules[name] = None\n"
        "sys.exit(pytest.main(['-q', '--noconftest', '-p', 'no:cacheprovider', '-k', 'not need_no_spark',"
        " 'tests/compiler', 'tests/algebra/test_monoid_family.py', 'tests/algebra/test_plan.py']))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
