"""A run of Dagster whose steps run under spark-submit: on this machine, on a cluster, and interrupted."""

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from deltafold.dagster.resources import SubmittedSpark
from deltafold.pipelines import catalogue
from deltafold.spark.cache import cache_folder
from deltafold.spark.host.process import start_of
from deltafold.spark.jvm.jars import delta_jars
from deltafold.spark.jvm.java import launch_environment, provide_java
from tests.crash.cluster.machines import cluster
from tests.dagster import sales
from tests.dagster.shown import located
from tests.night import night
from tests.spark.machine import PYTHONPATH

pytestmark = [
    night,
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning"),
]

JOB = """
import os
from pathlib import Path
from deltafold.cli.commands import main
Path(__file__).with_name("pids").write_text(f"{os.getpid()} {os.getppid()}")  # of Python, of its Java
main()
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> catalogue.Pipeline:
    """A pipeline, in the environment of a spark-submit."""
    variables = launch_environment(provide_java()) | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": PYTHONPATH}
    variables |= {"DELTAFOLD_CACHE": str(cache_folder()), catalogue.FOLDER_VARIABLE: str(tmp_path)}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    declared = sales.declare(tmp_path)
    sales.drop(declared, "2013-01-01", [(1, "a", 5), (2, "b", 3)])
    return declared


def update(pipeline: catalogue.Pipeline, master: str, *options: str) -> dg.ExecuteInProcessResult:
    job = pipeline.folder.parent / "job.py"
    job.write_text(JOB)
    command = [f"{os.environ['SPARK_HOME']}/bin/spark-submit", "--master", master, *options]
    command += ["--jars", ",".join(map(str, delta_jars())), "--conf", "spark.ui.enabled=false", str(job)]
    defined = located(pipeline, SubmittedSpark(command=shlex.join(command)))
    return defined.resolve_job_def("sales_update").execute_in_process(partition_key="2013-01-01", raise_on_error=False)


def checks(result: dg.ExecuteInProcessResult) -> list[bool]:
    return [check.passed for check in result.get_asset_check_evaluations()]


def test_on_this_machine(pipeline: catalogue.Pipeline) -> None:
    """The refresh finds the state of the last one, though another Spark wrote it."""
    assert checks(update(pipeline, "local[1]")) == [True]
    sales.drop(pipeline, "2013-01-01", [(1, "a", 7)])
    again = update(pipeline, "local[1]")
    assert checks(again) == [True]
    [view] = [event for event in again.get_asset_materialization_events() if event.asset_key == dg.AssetKey("sales")]
    assert view.materialization.metadata["epoch"].value == 2


def test_on_a_cluster(pipeline: catalogue.Pipeline, tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster", 1) as machines:
        memory = ("--conf", "spark.executor.memory=768m")
        result = update(pipeline, machines.address, "--conf", "spark.driver.host=127.0.0.1", *memory)
        assert checks(result) == [True]


def test_a_spark_without_delta(pipeline: catalogue.Pipeline) -> None:
    """Protects from attempts that cannot help."""
    job = pipeline.folder.parent / "job.py"
    job.write_text(JOB)
    command = [f"{os.environ['SPARK_HOME']}/bin/spark-submit", "--master", "local[1]", str(job)]
    defined = located(pipeline, SubmittedSpark(command=shlex.join(command)))
    update_job = defined.resolve_job_def("sales_update")
    result = update_job.execute_in_process(partition_key="2013-01-01", raise_on_error=False)
    [failed] = result.get_step_failure_events()
    assert failed.step_failure_data.user_failure_data is not None
    assert "lacks Delta Lake: its jars are not on the class path" in str(
        failed.step_failure_data.user_failure_data.description
    )
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


@pytest.fixture
def interrupted(pipeline: catalogue.Pipeline) -> Iterator[None]:
    """Interrupt this process once Python runs under spark-submit."""
    pids, over = pipeline.folder.parent / "pids", threading.Event()

    def interrupt() -> None:
        while not (pids.exists() and pids.read_text()) and not over.wait(0.1):
            pass
        if not over.wait(8):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    yield
    over.set()
    thread.join()


def test_an_interrupted_run_ends_its_spark(pipeline: catalogue.Pipeline, interrupted: None) -> None:
    """Protects from a job of a cancelled run that goes on, and from one that cannot be taken up again."""
    result = update(pipeline, "local[1]")
    assert not result.success
    assert not [event for event in result.all_events if event.is_step_up_for_retry]
    python, java = map(int, (pipeline.folder.parent / "pids").read_text().split())
    until = time.monotonic() + 20
    while start_of(python) or start_of(java):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert checks(update(pipeline, "local[1]")) == [True]
