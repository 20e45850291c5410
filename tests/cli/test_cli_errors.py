"""The command line's errors: one sentence on standard error, and an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltafold.algebra import errors
from deltafold.cli import exit_codes
from deltafold.pipelines import catalogue
from tests.cli.calling import call
from tests.cli.pretended import PretendedView


@pytest.mark.parametrize(
    ("first", "last", "reason"),
    [
        ("2024-06-01", "2024-05-01", "2024-05-01 is before 2024-06-01. Exchange --from and --to"),
        ("2024-07-01", "2024-07-31", "no source has a partition from 2024-07-01 to 2024-07-31"),
        ("2023-01-01", "2024-07-31", "2023-01-01 is outside the pipeline's partitions"),
    ],
)
def test_a_range_that_cannot_be(world: PretendedView, first: str, last: str, reason: str) -> None:
    result = call("backfill", "shop", "--from", first, "--to", last)
    assert result.exit_code == exit_codes.USAGE and reason in result.stderr
    assert world.asked == []


@pytest.mark.parametrize("value", ["../x", "2023-12-31", "x' OR '1'='1", ""])
def test_a_partition_that_cannot_be_is_refused_before_anything_is_landed(world: PretendedView, value: str) -> None:
    assert call("run", "shop", "--partition", value).exit_code == exit_codes.USAGE
    assert world.asked == []


REFUSAL = errors.Refusal("window(rank)", "ranks need the whole partition", "use policy: auto")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.RefusedError((REFUSAL,)), 3),
        (errors.ChangedQueryError("the query has changed. Rebuild it"), 3),
        (errors.SourceError("sales.csv, line 3: not a number"), 4),
        (errors.StateError("the state was removed"), 4),
        (errors.BusyError("another process refreshes shop"), 5),
        (errors.QueryError("there is no column amuont"), 2),
        (errors.DeltafoldError("something else"), 70),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(world: PretendedView, error: Exception, code: int) -> None:
    world.fails = error
    result = call("run", "shop")
    assert result.exit_code == code
    assert result.stderr.splitlines()[-1] == str(error)
    assert "Traceback" not in result.output


def test_what_nobody_expected(world: PretendedView) -> None:
    world.fails = ZeroDivisionError("division by zero\nsecond line")
    result = call("run", "shop")
    assert result.exit_code == exit_codes.UNEXPECTED
    assert (
        result.stderr.splitlines()[-1]
        == "Unexpected ZeroDivisionError: division by zero (--debug prints the traceback)"
    )
    assert "Traceback" not in result.output
    assert "Traceback (most recent call last)" in call("--debug", "run", "shop").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["runn"],
        ["run"],
        ["run", "nope"],
        ["run", "../etc"],
        ["run", "shop", "--partition", "x", "--no-land"],
        ["run", "shop", "--chunk", "much"],
        ["run", "shop", "--refresh", "a"],
        ["run", "--chunk", "1g"],
        ["run", "--spec", "no.yml"],
        ["dry-run"],
        ["backfill", "shop", "--from", "2024-05-01"],
    ],
)
def test_wrong_usage(world: PretendedView, arguments: list[str]) -> None:
    result = call(*arguments)
    assert result.exit_code == exit_codes.USAGE
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["backfill", "shop", "--from", "2024-06-01", "--to", "2024-05-01"], "Exchange --from and --to"),
        (["run", "shop", "--partition", "nope"], "'nope' is not a day"),
        (["show", "shop", "--quarantine", "nosuch"], "pipeline `shop`: it lands no source `nosuch`"),
        (["replay", "shop", "--source", "nosuch"], "pipeline `shop`: it lands no source `nosuch`"),
        (["branch", "shop", "shop"], "exists already"),
        (["branch", "shop", "a b"], "pipeline `a b`: invalid name"),
    ],
)
def test_what_is_refused_before_spark_starts(
    world: PretendedView, monkeypatch: pytest.MonkeyPatch, arguments: list[str], reason: str
) -> None:
    """Protects from waiting ten seconds for an error that the declaration alone shows."""
    started = list[object]()
    monkeypatch.setattr(catalogue, "start_spark", lambda *_, **__: started.append(_))
    result = call(*arguments)
    assert result.exit_code == exit_codes.USAGE and reason in result.stderr
    assert started == []


def test_variables_that_lead_nowhere(world: PretendedView, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Protects from an empty list where the folder is misspelt, and from the exit code of an unexpected error."""
    monkeypatch.setenv("DELTAFOLD_LOG", "yaml")
    result = call("list")
    assert (result.exit_code, "Use json" in result.stderr) == (exit_codes.USAGE, True)
    monkeypatch.delenv("DELTAFOLD_LOG")
    monkeypatch.setenv(catalogue.FOLDER_VARIABLE, str(tmp_path / "nonexistent"))
    for command in (["list"], ["status"], ["run", "shop"]):
        result = call(*command)
        assert (result.exit_code, result.stdout) == (exit_codes.USAGE, "")
        assert f"DELTAFOLD_PIPELINES: there is no folder {tmp_path}/nonexistent" in result.stderr
