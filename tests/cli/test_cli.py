"""The command line: what is printed where, and with which exit code, whatever happens below."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deltafold
from deltafold.algebra.recipe import Recipe
from deltafold.cli import exit_codes
from deltafold.pipelines import catalogue
from deltafold.store.history import Begun, Finished, Intent
from deltafold.store.journal import Journal
from tests.cli.calling import call
from tests.cli.pretended import ADDRESS, DIFFERENT, REPORT, PretendedView, Row
from tests.pipelines.declared import MINIMAL, write


def facts(*arguments: str) -> Any:
    return json.loads(call(*arguments, "--json").stdout)


def test_help_documents_the_exit_codes() -> None:
    said = " ".join(call("--help").stdout.split())
    assert (
        "Exit codes: 0 success; 1 the view does not equal the batch query; 2 invalid usage, declaration or query;"
        in said
    )
    assert (
        "3 query refused by the compiler, or changed since the view was built; 4 error in a source, its data, the "
        "stored state, the catalog or the disk, or a loop that does not end; 5 busy: another process works on the "
        "same; 70 any other error; 75 Spark ended during the work: run again." in said
    )


def test_run_lands_then_refreshes(world: PretendedView) -> None:
    result = call("run", "shop")
    assert result.exit_code == 0
    assert world.asked == [("sales", None), "refresh"]
    assert result.stdout == (
        "sales: 2 partitions landed, 1,200 rows, 1 unchanged (1.2 s)\n"
        "Epoch 3: 1,200 rows changed 7 groups in 2.0 s.\n"
        "  source versions: sales - to 1, shops 0 to 0\n"
        "  seconds: merge 1.5\n"
    )
    assert result.stderr.splitlines()[-1] == "shop: merging [bold]state[/bold]"


def test_run_without_landing_and_of_one_partition(world: PretendedView) -> None:
    assert call("run", "shop", "--no-land").exit_code == 0
    assert call("run", "shop", "--partition", "2024-05-01", "--partition", "2024-05-02").exit_code == 0
    assert world.asked == ["refresh", ("sales", ["2024-05-01", "2024-05-02"]), "refresh"]


def test_a_size_of_chunks(world: PretendedView) -> None:
    for command in ("run", "rebuild"):
        assert call(command, "shop", "--chunk", "2g").exit_code == 0
    assert [asked for asked in world.asked if isinstance(asked, str)] == ["refresh by 2147483648"] * 2


def test_backfill_lands_a_range_in_batches_then_refreshes_once(world: PretendedView) -> None:
    result = call("backfill", "shop", "--from", "2024-05-10", "--to", "2024-06-20", "--chunk", "512m")
    assert result.exit_code == 0, result.output
    first, second, refreshed = world.asked
    assert isinstance(first, tuple) and isinstance(second, tuple)
    assert first[1] == [f"2024-05-{day}" for day in range(10, 29)] + [f"2024-06-{day:02}" for day in range(1, 14)]
    assert second[1] == [f"2024-06-{day}" for day in range(14, 21)]
    assert refreshed == f"refresh by {512 << 20}"
    assert "shop: landing sales from 2024-06-14 to 2024-06-20 (2 of 2)" in result.stderr


def test_replay_says_what_stays_in_quarantine(world: PretendedView) -> None:
    landed = "sales: 2 partitions landed, 1,200 rows, 7 malformed rows left out, 12 rows in quarantine (1.2 s)\n"
    landed += "The next run brings them into the answer: deltafold run shop\n"
    assert call("replay", "shop").stdout == call("replay", "shop", "--source", "sales").stdout == landed
    assert world.asked == [("replay", "sales")] * 2
    call("replay", "shop", "--allow-loss")
    assert world.asked.pop() == ("replay", "sales")  # files lose nothing
    call("replay", "shop", "--source", "sales", "--allow-loss")
    assert world.asked.pop() == ("replay", "sales", True)
    assert facts("replay", "shop")[0]["quarantined"] == {"2024-05-01": 3, "2024-05-02": 4, "2024-05-04": 5}
    world.held = {}
    assert call("replay", "shop").stdout == "sales: no rows in quarantine\n"
    refused = call("replay", "shop", "--source", "sale")
    assert refused.exit_code == exit_codes.USAGE and "Did you mean `sales`?" in refused.stderr


def test_run_as_json(world: PretendedView) -> None:
    told = facts("run", "shop")
    assert told["landings"][0]["landed"] == ["2024-05-01", "2024-05-02"]
    assert told["report"]["epoch"] == 3


def test_verify_says_equal_by_its_exit_code(world: PretendedView) -> None:
    assert call("verify", "shop").exit_code == 0
    world.verification = DIFFERENT
    result = call("verify", "shop")
    assert result.exit_code == exit_codes.UNEQUAL
    assert result.stdout == "shop differs.\n  - (a\\x1b[31m, 1)\n"
    assert facts("verify", "shop")["missing"] == 1
    world.asked.clear()
    assert call("verify", "shop", "--sample", "0.5%").exit_code == 1
    assert world.asked == ["verify 0.005"]
    for wrong in ("0%", "101%", "a lot", "0.5"):
        assert "is not a share. Write for example 1% or 0.5%" in call("verify", "shop", "--sample", wrong).stderr


def test_show_prints_a_table(world: PretendedView) -> None:
    assert call("show", "shop").stdout == "city  revenue\n----  -------\nOslo     12.5\nNULL       -3\n"
    assert facts("show", "shop") == [{"city": "Oslo", "revenue": 12.5}, {"city": None, "revenue": -3}]
    assert "the first 1 rows" in call("show", "shop", "--limit", "1").stdout
    assert call("show", "shop", "--limit", "0").exit_code == exit_codes.USAGE


def test_control_characters_never_reach_the_terminal(world: PretendedView) -> None:
    world.rows = (Row(("\x1b[2J\nx", 1)),)
    assert "\\x1b[2J\\nx" in call("show", "shop").stdout


def test_history_and_explain(world: PretendedView) -> None:
    lines = call("history", "shop").stdout.splitlines()
    assert " ".join(lines[0].split()) == "generation epoch verdict changed groups written jobs commits seconds finished"
    assert lines[2].split() == ["1", "3", "applied", "1,200", "7", "1", "5", "2", "2.0", "2024-05-03T06:00:00Z"]
    world.reports = ()
    assert call("history", "shop").stdout == "never refreshed\n"
    assert call("explain", "shop").stdout == "r0 := sales\n"
    assert call("rebuild", "shop").stdout.startswith("Epoch 3")


def test_status_compares_with_the_sources(world: PretendedView, tmp_path: Path) -> None:
    assert facts("status")[0]["state"] == "up to date"
    world.version = 2
    told = facts("status")[0]
    assert (told["state"], told["lag"]["sales"], told["age"]) == ("behind", {"versions": 1, "rows": 10}, 7300.0)
    sizes = {
        "state": {"files": 4, "bytes": 2500000, "fragmented": 1},
        "view": {"files": 1, "bytes": 900, "fragmented": 0},
    }
    assert told["sizes"] == sizes
    said = " ".join(call("status").stdout.split())
    assert "applied 2 hours sales 1 version, 10 rows sales 12 rows" in said
    assert "12 rows 2.5 MB in 4 files, 1 partition fragmented 900 bytes in 1 file" in said
    world.unfinished = 4
    assert facts("status")[0]["state"] == "interrupted"
    assert "interrupted, epoch 4" in call("status").stdout
    world.unfinished, world.reports = None, ()
    assert facts("status")[0]["state"] == "never refreshed"
    write(tmp_path / "pipelines", "bad", "polcy: 1\n")
    result = call("status")
    assert result.exit_code == exit_codes.USAGE
    assert "invalid declaration" in result.stdout and "never refreshed" in result.stdout


def test_upkeep_and_rollback_say_what_was_done(world: PretendedView) -> None:
    result = call("maintain", "shop", "--retain", "24")
    assert result.exit_code == 0
    assert result.stdout == (
        "shop: state_1 compacted.\n"
        "  state_1: 2 partitions sorted, 9 files to 2; 3 old files removed, 4.2 KB\n"
        "  kept: files of the last 168 hours\n"
    )
    assert facts("maintain", "shop")["tables"]["state_1"]["files"] == [9, 2]
    assert call("rollback", "shop", "2").stdout.startswith("Epoch 3: ")
    assert call("rollback", "shop", "2", "--generation", "1").exit_code == 0
    assert call("maintain", "shop", "--buckets", "8").exit_code == 0
    asked = [
        ("maintain", 24.0),
        ("maintain", 168.0),
        ("rollback", 2, None),
        ("rollback", 2, 1),
        ("rebucket", 8),
        ("maintain", 168.0),
    ]
    assert world.asked == asked
    assert call("maintain", "shop", "--retain", "-1").exit_code == exit_codes.USAGE


def test_list_needs_no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path))
    write(tmp_path, "shop")
    assert call("list").stdout.splitlines()[2].split() == ["shop", "incremental", "sales", "-", "-"]
    assert facts("list")[0]["sources"]["sales"]["files"]["schema"] == "id INT, day DATE"
    write(tmp_path, "bad", MINIMAL + "polcy: 1\n")
    result = call("list")
    assert result.exit_code == exit_codes.USAGE
    assert "polcy: " in result.stdout and "`policy`" in result.stdout


def test_no_pipelines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Protects from a demo that runs unasked, and from an empty table where there is nothing."""
    monkeypatch.setenv("DELTAFOLD_PIPELINES", "")
    monkeypatch.chdir(tmp_path)
    shown = f"There are no pipelines in {tmp_path / 'pipelines'}. Create one: deltafold new NAME. Or see the demo: "
    for command in ("list", "status"):
        result = call(command)
        assert (result.exit_code, result.stdout) == (0, f"{shown}deltafold demo.\n")
        assert facts(command) == []
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "etl.py").touch()  # a package of the user's
    assert "It is a Python package, so create one elsewhere: deltafold --pipelines DIR new" in call("list").stdout
    assert call("new", "shop").exit_code == exit_codes.USAGE
    assert [file.name for file in (tmp_path / "pipelines").iterdir()] == ["etl.py"]
    assert call("--pipelines", "mine", "new", "shop").stdout == "Created mine/shop. Run it: deltafold run shop\n"
    assert call("--pipelines", "mine", "list").stdout.splitlines()[2].startswith("shop ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "pipelines"]


def test_version() -> None:
    assert call("--version").stdout == f"deltafold {deltafold.__version__}\n"


def test_path_is_the_table_of_the_last_finished_epoch_and_needs_no_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Protects from a script that opens the table of an epoch that is not finished, or none, without an error."""
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path / "pipelines"))
    write(tmp_path / "pipelines", "shop")
    result = call("path", "shop")
    assert (result.exit_code, result.stdout) == (exit_codes.DATA, "")
    assert (
        "view shop: " in result.stderr and "Refresh it first: view.refresh(), or `deltafold run shop`" in result.stderr
    )
    folder = tmp_path / ".warehouse" / "shop" / "views" / "shop"
    journal = Journal(folder / "journal")
    intent = Intent(view="shop", generation=2, epoch=3, fingerprint="f", buckets=1, sources={})
    journal.record(Recipe(fingerprint="f", columns=(("a b", "int"),)))
    journal.finish(Finished(intent, REPORT, {"state_1": 4, "view": 9}))
    journal.begin(Begun(replace(intent, generation=3, epoch=1)))
    assert call("path", "shop").stdout == f"{folder}/g2/view\n"
    told = facts("path", "shop")
    assert {name: told[name] for name in ("path", "table", "version", "generation", "epoch", "columns")} == {
        "path": f"{folder}/g2/view", "table": "g2/view", "version": 9, "generation": 2, "epoch": 3,
        "columns": [{"name": "a b", "type": "int"}],
    }  # fmt: skip
    assert call("path", "nope").exit_code == exit_codes.USAGE
    (folder / "journal" / "query-f.json").write_text("{")
    assert call("path", "shop").stderr.endswith("has lost the columns of the answer. Refresh it to restore them.\n")
    journal.record(Recipe(fingerprint="f", columns=(("a b", "int"),)))
    assert facts("path", "shop") == told


def test_spark_starts_briefly_for_little_work(world: PretendedView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where all rows are read: by a first load, a large change in parts, a rebuild, a verification."""
    started: list[bool] = []
    monkeypatch.setattr(catalogue, "start_spark", lambda pipeline, brief: started.append(brief))
    call("run", "shop")

    def address(pipeline: object) -> object:
        return ADDRESS

    monkeypatch.setattr(catalogue, "address", address)
    for command in (["run"], ["run", "--chunk", "1g"], ["rebuild"], ["explain"], ["verify"]):
        call(command[0], "shop", *command[1:])
    assert started == [False, True, False, False, True, False]


def test_new_makes_a_pipeline_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path / "mine"))
    assert call("new", "shop").stdout == f"Created {tmp_path}/mine/shop. Run it: deltafold run shop\n"
    assert call("new", "shop").exit_code == exit_codes.USAGE
    assert call("list").exit_code == 0


def test_new_takes_a_query_over_delta_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Protects from a path that is relative to another folder than the user's, and from half a pipeline."""
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path / "mine"))
    monkeypatch.chdir(tmp_path)
    Path("q.sql").write_text("SELECT k, count(*) AS n FROM orders JOIN old USING (k) GROUP BY k")
    options = "--sql", "q.sql", "--delta", "lake/orders", "--delta", "old=s3a://bucket/archive"
    assert "there is no Delta table at lake/orders" in call("new", "counts", *options).stderr
    for name in ("orders", "my-orders"):
        (tmp_path / "lake" / name / "_delta_log").mkdir(parents=True)
    assert call("new", "counts", *options).exit_code == 0
    pipeline = catalogue.load("counts", tmp_path / "mine")
    assert pipeline.query.text == Path("q.sql").read_text()
    assert {name: source.delta for name, source in pipeline.declaration.sources.items()} == {
        "orders": str(tmp_path / "lake" / "orders"), "old": "s3a://bucket/archive",
    }  # fmt: skip
    for wrong in (
        ("--sql", "q.sql"), ("--delta", "lake/orders"), ("--sql", "none.sql", "--delta", "lake/orders"),
        ("--sql", "q.sql", "--delta", "lake/my-orders"), ("--sql", "q.sql", "--delta", "o=a", "--delta", "o=b"),
        ("--sql", "q.sql", "--delta", "lake/orders", "--mrql"),
    ):  # fmt: skip
        assert call("new", "other", *wrong).exit_code == exit_codes.USAGE, wrong
    assert not (tmp_path / "mine" / "other").exists()


def test_doctor_says_what_must_be_mended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path))
    write(tmp_path, "shop", MINIMAL + "spark: {memory: 900000g}\n")
    result = call("doctor", "shop")
    assert result.exit_code == exit_codes.UNEXPECTED
    assert any(line.startswith("FAIL  900000g requested") for line in result.stdout.splitlines())
    assert {finding["name"] for finding in facts("doctor")} >= {"Python", "Java", "jars", "warehouse"}
