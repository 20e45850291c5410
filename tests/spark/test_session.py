"""A session is silent, leaves nothing behind, speaks Delta Lake with deletion vectors, and can be another process's."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.contest import count_calls
from deltafold.spark import catalyst
from deltafold.spark.session_settings import BRIEF, JAVA_VARIABLES, session_settings
from tests.conftest import SMALL
from tests.night import night
from tests.spark.machine import PROJECT, QUICK_JAVA, run, without_java

MERGES = f"""
import sys
from pyspark.sql.functions import udf
from deltafold.spark.session import start
spark = start(settings={{"spark.driver.extraJavaOptions": "{QUICK_JAVA}", **{SMALL}}})
table = f"delta.`{{sys.argv[1]}}`"
spark.sql(f"create table {{table}} (k int, v bigint) using delta "
          "tblproperties ('delta.enableDeletionVectors' = 'true')")
spark.range(100).selectExpr("cast(id as int) k", "id v").write.format("delta").mode("append").save(sys.argv[1])
spark.range(90, 110).selectExpr("cast(id as int) k", "-id v").createOrReplaceTempView("c")
spark.sql(f"merge into {{table}} t using c on t.k = c.k "
          "when matched and c.k < 95 then delete when matched then update set v = c.v when not matched then insert *")
metrics = spark.sql(f"describe history {{table}}").first().operationMetrics
assert int(metrics["numTargetDeletionVectorsAdded"]) > 0, metrics
rows = spark.sql(f"select count(*), sum(v) from {{table}}").first()
assert tuple(rows) == (105, sum(range(90)) - sum(range(95, 110))), rows
assert spark.range(3).select(udf(lambda n: n + 1, "bigint")("id")).count() == 3
assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
try:
    spark.sql("select nothing")
except Exception:
    pass
"""


@night
@pytest.mark.own_spark
@pytest.mark.parametrize("java", ["the machine's Java", "no Java"])
def test_session_prints_nothing_and_leaves_nothing(tmp_path: Path, java: str) -> None:
    """By day, tests/package/test_install.py has a Spark that prints nothing."""
    here, home, cache = tmp_path / "here", tmp_path / "home", os.environ.get("DELTAFOLD_CACHE", str(PROJECT / ".cache"))
    here.mkdir()
    home.mkdir()  # no ~/.ivy2 in it: the jars of the cache are all there is
    variables = {"HOME": str(home), "DELTAFOLD_CACHE": cache}
    if java == "no Java":
        variables["PATH"] = without_java(tmp_path / "bin")
    done = run(MERGES, str(tmp_path / "table"), cwd=here, **variables)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert not list(here.iterdir())
    assert not list(home.iterdir())


WRONG = """
import sys
from deltafold.spark.cache import SetupError
from deltafold.spark.session import start
try:
    start("wrong", master=sys.argv[1], memory="512m", settings={"spark.sql.shuffle.partitions": sys.argv[2]})
except SetupError as error:
    print(error)
"""


@night
@pytest.mark.parametrize(
    ("master", "partitions", "why"),
    [
        ("localhost", "2", "Could not parse Master URL: 'localhost'"),
        pytest.param("local[1]", "many", '"spark.sql.shuffle.partitions" is invalid', marks=night),
    ],
)
def test_a_setting_that_spark_refuses(tmp_path: Path, master: str, partitions: str, why: str) -> None:
    """Protects from Py4J's `An error occurred while calling None.org.apache.spark…`."""
    done = run(WRONG, master, partitions, cwd=tmp_path)
    assert done.stdout.startswith("Spark cannot start with these settings: ") and why in done.stdout, done
    assert done.stdout.endswith(". Correct them.\n")


def test_the_users_java_options_come_after_those_of_a_brief_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java takes the last of two options, and those of its variables only where there are no others."""
    name = "spark.driver.extraJavaOptions"

    def options(brief: bool, given: str = "") -> str:
        return session_settings("test", "local[1]", "1g", {name: given} if given else {}, brief=brief)[name]

    for variable in JAVA_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert options(True).startswith(f"{BRIEF} -Dlog4j2") and BRIEF not in options(False)
    assert options(True, "-XX:TieredStopAtLevel=4").startswith(f"{BRIEF} -XX:TieredStopAtLevel=4 -Dlog4j2")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=4")
    assert options(True) == options(False)


def test_a_page_of_memory_fills_its_regions(spark: SparkSession) -> None:
    """A page is an array: with its header over 4 MB it took 6 MB of G1's heap, which large sorts ran out of."""
    page = int(spark.conf.get("spark.buffer.pageSize") or 0)
    assert page > 0 and (page + 16) % (2 << 20) == 0


def test_members_of_java_classes_are_looked_up_once(spark: SparkSession) -> None:
    """Py4J asks Java what a name is at each mention, which was every eighth call of a refresh."""
    java = catalyst.jvm(spark)
    assert java.java.lang.Integer.valueOf("7") == 7
    with count_calls() as calls:
        assert java.java.lang.Integer.valueOf("8") == 8
        assert str(java.java.lang.StringBuilder("text")) == "text"
    assert calls[0] <= 4  # one for the number; class, object and text of the other


def test_scala_sequences_of_any_length(spark: SparkSession) -> None:
    for items in ([], [0], list(range(10)), list(range(11)), [None], ["a", None]):
        assert catalyst.sequence(catalyst.vector(spark, items)) == items


def test_second_start_is_the_same_spark_with_its_settings(spark: SparkSession) -> None:
    from deltafold.spark.session import start

    again = start(settings={"spark.sql.ansi.enabled": "true", "spark.local.dir": "/nowhere"})
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get("spark.sql.ansi.enabled") == "true"


def test_settings_of_the_session(spark: SparkSession) -> None:
    assert spark.conf.get("spark.databricks.delta.allFilesInCrc.thresholdNumFiles") == "1000"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.sql.catalogImplementation") == "in-memory"


GUEST = """
import sys
from deltafold.spark.session import start
spark = start(settings={"spark.sql.shuffle.partitions": "3"})
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
spark.range(int(sys.argv[1])).createOrReplaceTempView("mine")
print(spark.table("mine").count(), spark.sparkContext.applicationId, spark.catalog.tableExists("theirs"))
spark.range(1).createOrReplaceTempView("theirs")
spark.stop()
"""


ORPHAN = """
import os, signal, socket, sys, threading
from deltafold.spark.session import start
from deltafold.spark.host.address import NoHostError
spark, failed = start(), []
port = spark.sparkContext._gateway.gateway_parameters.port
os.kill(int(sys.argv[1]), signal.SIGKILL)
while True:
    try:
        stranger = socket.create_server(("127.0.0.1", port))
        break
    except OSError:
        pass
def ask():
    try:
        spark.range(1).count()
    except NoHostError:
        failed.append("refused")
thread = threading.Thread(target=ask)
thread.start()
thread.join(30)
print(*failed)
stranger.settimeout(0)
try:
    sys.exit(f"connected: {stranger.accept()[0].recv(100)}")
except BlockingIOError:
    sys.stdout.flush()
    os._exit(0)
"""


@night
@pytest.mark.own_spark
def test_guests_share_one_host_and_leave_it_running(tmp_path: Path) -> None:
    """Protects from a cold guest, and from one that talks to whoever has the port of a Java that was killed."""
    file = tmp_path / "spark.json"
    command = [sys.executable, "-m", "deltafold.spark.host", str(file)]
    host = subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not file.exists():
            assert host.poll() is None and time.monotonic() < deadline, "the host did not come up"
            time.sleep(0.2)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        guests = [run(GUEST, rows, cwd=tmp_path, DELTAFOLD_SPARK_HOST=str(file)) for rows in ("5", "7")]
        assert [guest.stderr for guest in guests] == ["", ""]
        (five, first, no), (seven, second, still_no) = (guest.stdout.split() for guest in guests)
        assert (five, seven, no, still_no) == ("5", "7", "False", "False")
        assert first == second
        java = json.loads(file.read_text())["process"]
        left = run(ORPHAN, str(java), cwd=tmp_path, DELTAFOLD_SPARK_HOST=str(file))
        assert (left.stdout, left.returncode) == ("refused\n", 0), left.stderr
        assert host.wait(60) == 1
    finally:
        host.kill()
        _, said = host.communicate()
    assert said.count("\n") == 1 and "its Java ended. Start it again" in said
    assert not file.exists()
