"""Define the fixtures of all tests: one quiet Spark with Delta Lake for the whole run, started at its first use."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from pyspark.sql import SparkSession

from tests.bare_spark import leave_out_checks
from tests.reading import SMALL_BY_DAY, reading
from tests.sandbox import DeltaSandbox, MemorySandbox

if TYPE_CHECKING:
    from deltafold.lake.protocol import Lake

# what tests leave in memory for an hour, where in the code each column came from, and plans for a UI that is off
BRIEF = {
    "spark.databricks.delta.delta.log.cacheSize": "64",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
}
# On a few rows, compiling a plan costs more than running it, and so does exchanging rows between two partitions.
# Tests of whole processes, and those of the night, compile and exchange.
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
SECRET = {"spark.hadoop.fs.test.secret.key": "hunter2"}  # test_loopback.py looks for it
# The second compiler costs a third of the time of a Java that plans ever new queries, and gains less; without it Java
# reserves too little memory for code, drops what it compiled and compiles it again; parallel collection gains nothing.
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC"
# collections are rarer than in a heap that grows from small: 3 % of the time of Java
ROOM = "-Xms1g -Xmn640m -XX:MetaspaceSize=320m"
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA)  # for the session's Java, and those of other processes
os.environ.pop("DAGSTER_HOME", None)  # commands would report to it

# Random tests: by day a few examples, always the same; by night many, new ones at each run, whose failures print what
# repeats them. None is shrunk: an example costs half a minute, and the failure prints its query and history.
COMMON = {
    "deadline": None, "database": None, "suppress_health_check": list(HealthCheck), "phases": [Phase.generate],
    "print_blob": True,
}  # fmt: skip
settings.register_profile("day", max_examples=2, derandomize=True, **COMMON)  # type: ignore[arg-type]
settings.register_profile("night", max_examples=1200, **COMMON)  # type: ignore[arg-type]


def pytest_configure(config: pytest.Config) -> None:
    long = bool(config.getoption("--long"))
    settings.load_profile("night" if long else "day")
    if long:
        config.option.timeout = 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run whole matrices, of which a sample is run otherwise")
    parser.addoption("--quick", action="store_true", help="leave out tests that need a Spark")
    parser.addoption("--regenerate-golden", action="store_true", help="rewrite expected texts; then read the diff")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked `night` unless `--long` is given; with `--quick` those that need a Spark, too."""
    if config.getoption("--long"):
        return
    quick = config.getoption("--quick")
    left = [item for item in items if item.get_closest_marker("night") or (quick and needs_spark(item))]
    config.hook.pytest_deselected(items=left)
    gone = {id(item) for item in left}
    items[:] = [item for item in items if id(item) not in gone]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test of a sandbox the parameter `reads`, unless it has its own."""
    own = any(mark.args[0] == "reads" for mark in metafunc.definition.iter_markers("parametrize"))
    if "reads" in metafunc.fixturenames and not own:
        in_memory = "sandbox" in metafunc.fixturenames
        metafunc.parametrize("reads", SMALL_BY_DAY if in_memory else ["small"], indirect=True)


def needs_spark(item: pytest.Item) -> bool:
    """Whether a test uses the session's Spark, or starts processes with one."""
    return "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("own_spark") is not None


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Whether whole matrices are run, not samples."""
    return bool(request.config.getoption("--long"))


@pytest.fixture
def regenerate(request: pytest.FixtureRequest) -> bool:
    """Whether expected texts are rewritten from the actual ones."""
    return bool(request.config.getoption("--regenerate-golden"))


@pytest.fixture(scope="session")
def spark(long: bool) -> Iterator[SparkSession]:
    from deltafold.spark.session import start

    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false", **BRIEF, **SECRET}
    settings["spark.driver.extraJavaOptions"] = ROOM
    if not long:
        settings |= SMALL
    session = start("deltafold tests", master="local[2]", memory="3g", settings=settings)
    if not long:
        leave_out_checks(session)
    yield session
    session.stop()


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Compile plans by day too, for a test of many rows."""
    settings = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value or "")


@pytest.fixture
def reads(request: pytest.FixtureRequest) -> Iterator[str]:
    """How large inputs seem to be: the parameter, see tests/reading.py."""
    with reading(request.param) as name:
        yield name


@pytest.fixture
def sandbox(spark: SparkSession, tmp_path: Path, reads: str) -> MemorySandbox:
    """A warehouse over tables in memory, for every test that is not about Delta itself."""
    return MemorySandbox(spark, tmp_path)


@pytest.fixture
def delta(spark: SparkSession, tmp_path: Path, reads: str) -> DeltaSandbox:
    """A warehouse over Delta tables, ten times slower."""
    return DeltaSandbox(spark, tmp_path)


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Make every warehouse in the test have its tables in memory, also those that commands open."""
    from deltafold import api
    from tests.lake.memory.table import MemoryLake

    lake = MemoryLake()
    monkeypatch.setattr(api, "DELTA", lake)
    return lake


@pytest.fixture
def files_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the files of tables in memory by the order of writing, which is then that of chunks."""
    numbers = itertools.count()
    monkeypatch.setattr("tests.lake.memory.table.uuid", SimpleNamespace(uuid4=lambda: f"{next(numbers):09}"))


@pytest.fixture
def mount(spark: SparkSession, tmp_path: Path) -> str:
    """A new, empty folder at a URI without a server: a mount of Hadoop's viewfs, which leads to a folder here."""
    name, folder = f"lake{uuid4().hex[:8]}", tmp_path / "mounted"  # Hadoop remembers the mounts of a name
    folder.mkdir()
    settings = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()
    settings.set(f"fs.viewfs.mounttable.{name}.link./wh", folder.as_uri())
    return f"viewfs://{name}/wh"
