"""The digest of a Python function depends on what it does, not on its layout. Without Spark."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.serializers import CloudPickleSerializer

from deltafold.language.fingerprint.python_functions import Meaning

OWN = """
FACTOR = 2
def scaled(value):
    return value * FACTOR
"""
QUERY = '''
import re
import sys

KNOWN = {"x", "y", "z"}
BLANK = re.compile(" +")

def doubled(value):
    return value * 2

class Step:
    size = 3

    def after(self, value):
        return value + self.size

def clean(value, step=Step()):
    """What it does."""
    from_here = [doubled(each) for each in value if each not in KNOWN]
    return BLANK.sub("", str(from_here)), step.after(1), own.scaled(1), scaled(2)
'''
HARMLESS = [
    ("import re\n", "# a comment\n\n\nimport re\n"),
    ("What it does.", "It does something."),
    ("[doubled(each) for each", "[  # why\n        doubled( each )\n        for each"),
    ("from_here", "found"),
]
OTHERS = [
    ("value * 2", "value * 3"),
    ("size = 3", "size = 4"),
    ("value + self.size", "value - self.size"),
    ('" +"', '"-+"'),
    ('"z"', '"w"'),
    ("str(from_here)", "repr(from_here)"),
    ("scaled(2)", "scaled(3)"),
    ("step=Step()", "step=None"),
]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the user's own, whose functions are pickled by name; it is written again within a second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def meaning(folder: Path, text: str, name: str = "query") -> str:
    """The meaning of `clean` in a file with this text, after Spark's pickle."""
    sys.modules.pop("own", None)
    path = folder / f"{name}.py"
    path.write_text(f"import own\nfrom own import scaled\n{text}")
    spec = importlib.util.spec_from_file_location("query_of_shop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    serializer = CloudPickleSerializer()
    try:
        return repr(Meaning().of(serializer.loads(serializer.dumps((module.clean, "string")))))
    finally:
        sys.modules.pop("own", None)


def test_layout_does_not_count(own: Path) -> None:
    """Comments, formatting, documentation, the names of local variables, and the file's own name."""
    first = meaning(own, QUERY)
    for number, (was, becomes) in enumerate(HARMLESS):
        assert was in QUERY
        assert meaning(own, QUERY.replace(was, becomes), f"query_{number}") == first, becomes


def test_everything_that_runs_counts(own: Path) -> None:
    """Including what the function refers to, in its file and in an imported module of the user's."""
    first = meaning(own, QUERY)
    for was, becomes in OTHERS:
        assert was in QUERY
        assert meaning(own, QUERY.replace(was, becomes)) != first, becomes
    (own / "own.py").write_text(OWN.replace("value * FACTOR", "value - FACTOR"))
    other = meaning(own, QUERY)
    (own / "own.py").write_text(OWN.replace("FACTOR = 2", "FACTOR = 22"))
    assert len({first, other, meaning(own, QUERY)}) == 3


def test_every_process_finds_the_same(own: Path) -> None:
    """Neither the order of sets nor memory addresses may show."""
    program = f"""
import sys
sys.path.insert(0, {str(own)!r})
from pathlib import Path
from tests.language.test_functions import QUERY, meaning
print(meaning(Path({str(own)!r}), QUERY))
"""
    project = Path(__file__).resolve().parents[2]
    found = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=project, env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for seed in ("1", "4242")
    }  # fmt: skip
    assert found == {meaning(own, QUERY)}
