"""Steps in processes of their own, through Dagster Pipes: the same events, failures and ends as in one process."""

import importlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import DATA_VERSION_TAG
from pyspark.sql import SparkSession

from deltafold.dagster import metadata
from deltafold.dagster.partitions import RANGE_END, RANGE_START
from deltafold.dagster.resources import (
    HOST_VARIABLE,
    SUBMIT_VARIABLE,
    PipesAnswers,
    PipesSpark,
    SparkResource,
    SubmittedSpark,
    run_group,
)
from deltafold.dagster.task_runner import CRASHES, StepContext, TaskRunner
from deltafold.operations.rollback import Rollback
from deltafold.pipelines import catalogue
from deltafold.spark.host.keeper import publish
from deltafold.spark.host.process import start_of
from tests.dagster import sales
from tests.dagster.shown import located
from tests.night import night
from tests.pipelines.declared import write

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning"),
]

DELTAFOLD = [sys.executable, "-m", "deltafold"]
DAYS = {RANGE_START: "2013-01-01", RANGE_END: "2013-01-03"}
AT_ONCE = dg.RetryPolicy(max_retries=CRASHES.max_retries)
"""Tries again without a pause."""
MEASURED = {"seconds", "phases", "cost", "summary", "jobs", "rows read"}
"""What two runs of the same work measure differently; the summary has its seconds."""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> catalogue.Pipeline:
    monkeypatch.setenv(catalogue.FOLDER_VARIABLE, str(tmp_path))
    return sales.declare(tmp_path)


@pytest.fixture
def host(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every process attach to the Spark of the tests, which is quicker than to start one."""
    publish(spark, tmp_path / "host.json")
    monkeypatch.setenv(HOST_VARIABLE, str(tmp_path / "host.json"))


def run(
    pipeline: catalogue.Pipeline, spark: TaskRunner, job: str, tags: Mapping[str, str] | None = None, **more: Any
) -> dg.ExecuteInProcessResult:
    """Run a job of the pipeline, on an instance of its own unless one is given."""
    defined = located(pipeline, spark, retry_policy=AT_ONCE)
    chosen = defined.resolve_job_def(job)
    return chosen.execute_in_process(tags=tags, raise_on_error=False, **more)


def events(result: dg.ExecuteInProcessResult) -> list[Any]:
    """The materialisations and checks of a run, without what is measured and the numbers of run and events."""
    found: list[Any] = []
    for event in result.all_events:
        if event.is_step_materialization:
            made = event.step_materialization_data.materialization
            tags = {name: value for name, value in (made.tags or {}).items() if "data_version" in name}
            found.append((made.asset_key, made.partition, bool(made.description), tags, compared(made.metadata)))
        elif event.event_type_value == "ASSET_CHECK_EVALUATION":
            check = event.asset_check_evaluation_data
            found.append((check.asset_key, check.check_name, check.passed, check.severity, compared(check.metadata)))
    return found


def compared(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, object]:
    return {name: type(value) if name in MEASURED else value for name, value in metadata.items()}


def failure(result: dg.ExecuteInProcessResult) -> tuple[str, int]:
    """The sentence of the only failed step, and how often it was tried again."""
    [failed] = result.get_step_failure_events()
    assert failed.step_failure_data.user_failure_data is not None, failed.step_failure_data.error
    again = sum(event.is_step_up_for_retry for event in result.all_events)
    return failed.step_failure_data.user_failure_data.description or "", again


def test_the_same_events_as_in_one_process(pipeline: catalogue.Pipeline, host: None) -> None:
    """Protects from a run whose pages show less, or whose assets look outdated, since Spark ran elsewhere."""
    sales.drop(pipeline, "2013-01-01", [(1, "a", 5), (2, "b", 3)])
    sales.drop(pipeline, "2013-01-03", [(3, "a", 9)])
    results: list[list[Any]] = []
    for resource in (SparkResource(), SubmittedSpark(command=shlex.join(DELTAFOLD))):
        shutil.rmtree(pipeline.warehouse, ignore_errors=True)
        result = run(pipeline, resource, "sales_update", DAYS)
        assert result.success
        results.append(events(result))
    assert results[0] == results[1]
    landed, view = dg.AssetKey(["sales", "landed", "sales"]), dg.AssetKey("sales")
    shown = [landed] * 3 + [landed]  # the day without files again, with its own data version
    assert [key for key, *_ in results[0]] == shown + [view] * 2


@night
def test_a_chain_and_its_upkeep(pipeline: catalogue.Pipeline, tmp_path: Path, host: None) -> None:
    """The views below have their events, too, and the step of the upkeep shows what it did."""
    text = "sources:\n  sales: {view: sales}\nwarehouse: warehouse\n"
    write(tmp_path, "top", text, sql="SELECT sales, count(*) AS shops FROM sales GROUP BY sales")
    top = catalogue.load("top", tmp_path)
    sales.drop(pipeline, "2013-01-01", [(1, "a", 5), (2, "b", 3)])
    assert run(pipeline, SparkResource(), "sales_update", partition_key="2013-01-01").success
    results: list[list[Any]] = []
    for resource in (SparkResource(), SubmittedSpark(command=shlex.join(DELTAFOLD))):
        shutil.rmtree(top.warehouse, ignore_errors=True)
        shutil.rmtree(Path(pipeline.warehouse) / "views")
        results.append(events(run(top, resource, "top_refresh")))
    assert results[0] == results[1]
    assert {key for key, *_ in results[0]} >= {dg.AssetKey("sales"), dg.AssetKey("top")}
    done = run(top, SubmittedSpark(command=shlex.join(DELTAFOLD)), "maintain_top")
    [output] = [event.step_output_data for event in done.all_events if event.is_successful_output]
    assert "retention hours" in (output.metadata or {})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Rollback, "grow", lambda self, progress: self.rebucket(3, progress))
        done = run(top, SparkResource(), "maintain_top")
    moved = {key: tags[DATA_VERSION_TAG] for key, _, _, tags, _ in events(done)}
    assert moved[dg.AssetKey("top")] == metadata.data_version(2, 1)  # as it is in another table now


PYTHON = shlex.quote(sys.executable)
DIE = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    ("command", "said", "again"),
    [
        ("/nowhere/spark-submit", "/nowhere/spark-submit: it cannot be started: No such file or directory", 0),
        ("spark-submit 'job.py", f"{SUBMIT_VARIABLE}: no closing quotation in spark-submit 'job.py. Correct it", 0),
        (f"{PYTHON} -c '{DIE}'", "ended by SIGKILL before it sent a result", 2),
        (f"{PYTHON} -c 'raise SystemExit(3)'", "ended with code 3 before it sent a result", 2),
        (f"{PYTHON} -c ''", "sales: the process of this step ended without a result", 2),
    ],
)
def test_a_process_without_a_result(pipeline: catalogue.Pipeline, command: str, said: str, again: int) -> None:
    """Protects from a step that looks done, and from one that is tried again in vain."""
    result = run(pipeline, SubmittedSpark(command=command), "sales_update", DAYS)
    found, tries = failure(result)
    assert said in found
    assert tries == again


class ByClient(PipesSpark):
    """Through a client that comes with Dagster, as on EMR."""

    def launch(self, context: StepContext, extras: Mapping[str, Any]) -> PipesAnswers:
        return dg.PipesSubprocessClient().run(context=context, extras=extras, command=[*DELTAFOLD, "step"])


class ByArguments(PipesSpark):
    """Through the arguments of the command line, as on Dataproc."""

    def launch(self, context: StepContext, extras: Mapping[str, Any]) -> PipesAnswers:
        injector, reader = dg.PipesEnvContextInjector(), dg.PipesTempFileMessageReader()
        with dg.open_pipes_session(context, injector, reader, extras) as session:
            given = [part for pair in session.get_bootstrap_cli_arguments().items() for part in pair]
            subprocess.run([*DELTAFOLD, "step", *given], check=True)
        return session


@pytest.mark.parametrize("spark", [SubmittedSpark(command=shlex.join(DELTAFOLD)), ByClient(), ByArguments()], ids=repr)
def test_a_user_error_there_is_a_sentence_here(
    pipeline: catalogue.Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: TaskRunner
) -> None:
    """Protects from attempts that cannot help: the other machine has no such pipeline."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv(catalogue.FOLDER_VARIABLE, str(tmp_path / "empty"))
    found = failure(run(pipeline, spark, "sales_update", DAYS))
    assert found[0].startswith(f"pipeline `sales`: not found in {tmp_path / 'empty'}")
    assert found[1] == 0


def test_the_variable_is_the_command(pipeline: catalogue.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMIT_VARIABLE, "spark-submit --conf 'a=b c' job.py")
    defined: dg.Definitions = importlib.reload(importlib.import_module("deltafold.dagster.definitions")).defs
    assert (defined.resources or {})["deltafold"].command == "spark-submit --conf 'a=b c' job.py"


def test_a_step_that_nobody_asks_for() -> None:
    done = subprocess.run([*DELTAFOLD, "step"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == "step: Dagster Pipes did not start this process. Run it by Dagster, or `deltafold run NAME`.\n"
    )


def test_a_malformed_row_is_refused_without_its_values(
    pipeline: catalogue.Pipeline, host: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """Protects from values of rows in the event database and in the logs of the run."""
    (sales.drop(pipeline, "2013-01-01", []) / "wrong.csv").write_text("id,shop,amount\n2,a,many\n")
    instance = dg.DagsterInstance.ephemeral()
    result = run(pipeline, SubmittedSpark(command=shlex.join(DELTAFOLD)), "sales_update", DAYS, instance=instance)
    found, tries = failure(result)
    assert "wrong.csv, line 2, does not fit" in found
    assert tries == 0
    stored = "".join(map(dg.serialize_value, instance.all_logs(result.run_id)))
    assert "in land" in stored  # the lines of code
    assert "2,a,many" not in stored + "".join(capfd.readouterr())


KILLED_AT_FIRST = """
import sys
from pathlib import Path
from deltafold.cli.commands import main
from tests.crash.points import kill_process, watched
marker = Path(sys.argv.pop(1))
if marker.exists():
    main()
marker.touch()
with watched(4, kill_process):
    main()
"""


@night
def test_an_attempt_finishes_what_a_killed_one_began(pipeline: catalogue.Pipeline, tmp_path: Path, host: None) -> None:
    sales.drop(pipeline, "2013-01-01", [(1, "a", 5)])
    assert run(pipeline, SparkResource(), "sales_update", partition_key="2013-01-01").success
    sales.drop(pipeline, "2013-01-02", [(2, "a", 6)])
    assert run(pipeline, SparkResource(), "sales_update", partition_key="2013-01-02").success
    shutil.rmtree(Path(pipeline.warehouse) / "views")
    killing = SubmittedSpark(command=shlex.join([sys.executable, "-c", KILLED_AT_FIRST, str(tmp_path / "killed")]))
    result = run(pipeline, killing, "sales_refresh")
    assert result.success
    assert [event.step_key for event in result.all_events if event.is_step_up_for_retry] == ["sales__refresh"]
    [view] = [event for event in result.get_asset_materialization_events() if event.asset_key == dg.AssetKey("sales")]
    assert view.materialization.metadata["verdict"].value == "resumed"
    assert [check.passed for check in result.get_asset_check_evaluations()] == [True]


PARENT = """
import subprocess, sys, time
deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
with open(sys.argv[1], "w") as out:
    child = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    child.stdout.readline()
    out.write(str(child.pid))
time.sleep(600)
"""


def test_an_interrupted_run_ends_the_process_and_its_own(tmp_path: Path) -> None:
    """Protects from a Spark that goes on after its run was cancelled, also where it does not listen."""
    started = tmp_path / "child"

    def interrupt() -> None:
        while not (started.exists() and started.read_text()):
            time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_group([sys.executable, "-c", PARENT, str(started)], dict(os.environ), grace=0.5)
    child = int(started.read_text())
    until = time.monotonic() + 20
    while start_of(child) is not None:
        assert time.monotonic() < until
        time.sleep(0.05)
