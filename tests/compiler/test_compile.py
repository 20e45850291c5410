"""The compiler as a whole: the program, the passes, the answer columns it accepts, and no need of Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deltafold.algebra.errors import QueryError
from deltafold.algebra.plan import StateRead
from deltafold.algebra.traversal import walk
from deltafold.compiler.compile import PASSES, check_outputs, compile_query, run_passes
from tests.compiler.plans import K, Q, T, V, call, draft, grouped, where

PROJECT = Path(__file__).resolve().parents[2]


def test_program_of_a_group_by() -> None:
    """The state is split off; outputs and declarations are kept."""
    plan = where(grouped(T, (K,), call("s", "sum", V)), "s > 1")
    program = compile_query(draft(plan, (K, "Key"), invariant=frozenset("x")))
    assert program.sources == ("t",)
    assert program.outputs == ((K, "Key"),)
    assert program.invariant == {"x"}
    assert [state.name for state in program.states] == ["state_1"]
    assert [n.state for n in walk(program.answer) if isinstance(n, StateRead)] == ["state_1"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("a", "b", "A"), ("duplicate answer column 'A'", "'a' only in case", "with AS")),
        (("a", "a"), ("duplicate answer column 'a'", "occurs twice", "with AS")),
        (("a", "__x"), ("reserved answer column '__x'", "'__'", "with AS")),
        ((), ("selects no column",)),
    ],
)
def test_answer_columns_a_table_cannot_have(names: tuple[str, ...], words: tuple[str, ...]) -> None:
    """Delta would fail in the middle of the first refresh."""
    with pytest.raises(QueryError) as refused:
        check_outputs(tuple((Q, name) for name in names))
    assert [word for word in words if word not in str(refused.value)] == []


def test_answer_columns_a_table_can_have() -> None:
    """Spaces, parentheses and other letters are fine."""
    check_outputs(((K, "sum(v)"), (Q, "größe (cm)"), (V, "_x")))


def test_passes_are_named_by_their_files() -> None:
    """A pass is one function in one file of its name, so that the tuple is the table of contents."""
    modules = [each.__module__.removeprefix("deltafold.compiler.") for each in PASSES]
    assert modules == [f"passes.{each.__name__}" for each in PASSES]
    names = [name for name, _ in run_passes(draft(grouped(T, (K,), call("s", "sum", V))))]
    assert names == [each.__name__ for each in PASSES]


def test_these_tests_need_no_spark() -> None:
    """The compiler is pure Python: its tests on hand-made plans pass where pyspark cannot be imported."""
    tests = [str(path) for path in Path(__file__).parent.rglob("test_*.py") if path.stem != "test_passes"]
    tests += [f"tests/algebra/{name}.py" for name in ("monoids/test_monoid_family", "test_plan", "test_canonical")]
    program = (
        "import sys, pytest\n"
        "for name in ('pyspark', 'py4j', 'delta'): sys.modules[name] = None\n"
        f"sys.exit(pytest.main(['-q', '--noconftest', '-k', 'not need_no_spark', *{tests}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
