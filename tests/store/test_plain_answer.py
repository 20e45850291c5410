"""The plain table of an answer: what any engine reads equals the batch query, and has nothing that it need not have."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import DeltafoldError, DeltafoldWarning, UsageError
from deltafold.algebra.tuning import MB
from deltafold.api import Files, View, Warehouse
from deltafold.store.plain_answer import PHASE, PLAIN
from tests.night import every, night
from tests.sandbox import DeltaSandbox, Sandbox, checked

GROUPED = "select k, sum(v) s, count(*) n from t group by k"  # stored in the columns of a state
BAG = "select k, v * 2 w from t where v > 0"  # its own table has copy numbers
SCHEMA = "k int, v int"


def folder_of(view: View) -> Path:
    return Path(str(view.folder))


def published(view: View) -> Counter[tuple[object, ...]]:
    """The rows of the table that readers are pointed to, with all of its columns."""
    table = view.warehouse.lake.table(view.warehouse.spark, view.address.path)
    rows = table.at(table.version() or 0)
    assert rows.columns == [column.name for column in view.columns]
    return Counter(tuple(row) for row in rows.collect())


def is_published(view: View) -> None:
    """The plain table has the last answer, duplicates counted."""
    assert view.address.plain and view.address.reader_features == ()
    assert Path(view.path) == (view.warehouse.root / "views" / view.name / PLAIN).resolve()
    assert published(view) == Counter(tuple(row) for row in view.answer().collect())
    assert view.verify().ok


@pytest.mark.parametrize("query", every(2, [BAG, GROUPED]))
def test_it_equals_the_answer_through_the_life_of_a_view(sandbox: Sandbox, query: str) -> None:
    """Protects from readers of a stale or wrong table, and from rows that are lost because they are equal."""
    sandbox.source("t", SCHEMA, [])
    view = sandbox.view(query, publish="plain")
    view.refresh()
    is_published(view)
    for step in (
        "insert into {t} values (1, 1), (1, 1), (2, 3), (2, 3), (2, 3)",
        "insert into {t} values (1, 1), (3, 5)",
        "update {t} set v = 1 where k = 3",
        "delete from {t} where k = 2 and v = 3",
        "insert into {t} values (2, 1)",
    ):
        sandbox.sql(step)
        checked(view)
        is_published(view)
    view.rebuild()
    view.rollback(3, 1)
    is_published(view)
    assert view.branch("other").address.plain
    assert PLAIN in view.maintain(0).tables
    is_published(view)


def test_it_is_left_when_the_answer_outgrows_it_and_taken_up_again(sandbox: Sandbox) -> None:
    """Protects from a table that nobody updates any more, at a path that somebody reads."""
    sandbox.source("t", SCHEMA, [(n, n) for n in range(20)])
    sandbox.tune(plain_bytes=MB)
    view = sandbox.view(BAG)
    view.refresh()
    is_published(view)
    sandbox.tune(plain_bytes=2)
    sandbox.sql("insert into {t} values (1, 1)")
    with pytest.warns(DeltafoldWarning, match=r"no longer published as a plain table.*declare publish: plain"):
        checked(view)
    address = view.address
    assert not address.plain and address.reader_features == ("deletionVectors",) and address.table == "g1/view"
    assert not (folder_of(view) / PLAIN).exists()
    assert (view.status().path, view.status().reader_features) == (address.path, ("deletionVectors",))
    view = sandbox.view(BAG, publish="plain")
    assert view.refresh().verdict == "nothing to do"
    is_published(view)
    sandbox.view(BAG, publish="fast").refresh()
    assert not (folder_of(view) / PLAIN).exists() and Path(view.path).name == "view"


def test_what_others_do_to_it_is_found_and_mended(sandbox: Sandbox) -> None:
    """Protects from an answer that somebody changed, and from a warehouse that an earlier release wrote."""
    sandbox.source("t", SCHEMA, [(1, 1), (2, 2)])
    view = sandbox.view(GROUPED, publish="plain")
    view.refresh()
    sandbox.sql("update {p} set s = 7 where k = 1", p=view.path)
    told = view.verify()
    assert not told.ok and (told.missing, told.extra) == (1, 1) and "the plain table differs" in told.sentence
    assert view.refresh().verdict == "nothing to do"
    is_published(view)
    sandbox.remove(f"warehouse/views/v/{PLAIN}")
    assert view.refresh().verdict == "nothing to do"
    is_published(view)
    pointer = folder_of(view) / "current.json"
    new = ("plain", "reader_features", "publication")
    old = {key: value for key, value in json.loads(pointer.read_text()).items() if key not in new}
    kept = view.store.journal.last_complete()
    assert kept is not None and kept.after is not None
    (table,) = kept.after
    pointer.write_text(json.dumps(old | {"table": f"g1/{table}", "path": str(view.folder / "g1" / table)}))
    assert view.address.reader_features is None and view.address.table == f"g1/{table}"
    assert view.refresh().verdict == "nothing to do"
    is_published(view)


def test_an_epoch_that_keeps_the_answer_writes_it_no_more(sandbox: Sandbox) -> None:
    """Protects from a rewrite of a table that is up to date: of another state, or after an epoch was taken back."""
    sandbox.source("t", SCHEMA, [(1, 1), (1, 4)])
    view = sandbox.view("select k, max(v) m from t group by k having 10 / min(v) > -100", publish="plain")
    view.refresh()
    table = view.warehouse.lake.table(view.warehouse.spark, view.address.path)
    sandbox.sql("insert into {t} values (1, 2)")
    assert view.refresh().epoch == 2
    sandbox.sql("insert into {t} values (1, 0)")
    with pytest.raises(DeltafoldError):
        view.refresh()
    assert view.status().verdict == "taken back"
    sandbox.sql("update {t} set v = 3 where v = 0")
    checked(view)
    is_published(view)
    assert (table.version(), view.address.epoch) == (0, 4)
    sandbox.sql("insert into {t} values (1, 9)")
    checked(view)
    is_published(view)
    assert table.version() == 1


def test_a_view_above_and_a_change_in_chunks(sandbox: Sandbox) -> None:
    """Protects from half of a change in what readers see, and from a view that reads the table of readers."""
    sandbox.source("t", SCHEMA, [(1, 1)])
    view = sandbox.view(BAG, publish="plain")
    sandbox.warehouse.source("below", view)
    above = sandbox.view("select w, count(*) n from below group by w", "above", publish="plain")
    checked(above)
    for number in range(3):
        sandbox.sql(f"insert into {{t}} values ({number}, 1)")
    assert "chunks" in view.refresh(chunk=1).sentence
    is_published(view)
    checked(above)
    is_published(above)


def test_its_write_is_counted(delta: DeltaSandbox) -> None:
    """Protects from a refresh whose report leaves out the work that it does for readers."""
    delta.source("t", SCHEMA, [(1, 1), (1, 1), (2, 3)])
    plain, fast = delta.view(BAG, "plain", publish="plain"), delta.view(BAG, "fast", publish="fast")
    for _ in range(2):
        one, other = plain.refresh(), fast.refresh()
        rows = plain.count()
        assert (one.commits, other.commits) == (2, 1)
        assert one.jobs > other.jobs and one.rows_written == other.rows_written + rows
        assert PHASE in one.phases and PHASE not in other.phases
        delta.sql("insert into {t} values (4, 4)")
    plain.refresh()
    idle = plain.refresh()
    assert (idle.jobs, idle.commits, idle.phases) == (0, 0, {})


def test_readers_stay_at_the_plain_table_until_the_next_epoch_is_published(sandbox: Sandbox) -> None:
    """Protects from a path that changes while an epoch is published, or after a crash, to a table they cannot read."""
    sandbox.source("t", SCHEMA, [(1, 1)])
    view = sandbox.view(GROUPED, publish="plain")
    view.refresh()
    pointer = folder_of(view) / "current.json"
    path, pointed = view.path, pointer.read_text()
    sandbox.sql("insert into {t} values (2, 3)")
    view.refresh()
    pointer.write_text(pointed)  # as if a crash had prevented what follows the end of the epoch
    assert view.path == path and view.address.plain and view.address.epoch == 1
    assert view.status().path == path and view.verify().ok
    assert view.refresh().verdict == "nothing to do"
    is_published(view)
    assert view.address.epoch == 2


def test_a_view_whose_table_is_gone_can_be_rebuilt(sandbox: Sandbox) -> None:
    """Protects from a rebuild that first publishes the answer that is damaged, and fails with the advice to rebuild."""
    sandbox.source("t", SCHEMA, [(1, 1)])
    view = sandbox.view(GROUPED, publish="plain")
    view.refresh()
    sandbox.remove("warehouse/views/v/g1")
    sandbox.remove(f"warehouse/views/v/{PLAIN}")
    with pytest.raises(DeltafoldError):
        view.refresh()
    view.rebuild()
    is_published(view)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"publish": "slow"}, r"unknown publication 'slow'. Use auto, plain, fast or table"),
        ({"publish": "fast", "cluster_by": ["k"]}, r"view v: table_properties and cluster_by are of the plain table"),
        ({"table_properties": {"delta.enableDeletionVectors": "true"}}, r"is set by Deltafold. Leave it out"),
        ({"table_properties": {"delta.appendOnly": "true"}}, r"delta.appendOnly is set by Deltafold. Leave it out"),
        ({"table_properties": {"deltafold.form": "x"}}, r"deltafold.form is set by Deltafold"),
        ({"table_properties": {"owner": "x"}}, r"owner is reserved by Spark. Choose another name"),
        ({"cluster_by": "day"}, r"view v: cluster_by: the answer has no column day. Name one that it has"),
    ],
)
def test_options_that_cannot_be_are_refused(sandbox: Sandbox, options: dict[str, Any], fault: str) -> None:
    sandbox.source("t", SCHEMA, [(1, 1)])
    with pytest.raises(UsageError, match=fault):
        sandbox.view(GROUPED, **options).refresh()
    assert not (sandbox.folder / "warehouse" / "views").exists()


def actions(view: View, kind: str) -> list[dict[str, object]]:
    """The actions of a kind in the log of the plain table, the oldest first."""
    log = sorted((folder_of(view) / PLAIN / "_delta_log").glob("*.json"))
    lines = (json.loads(line) for file in log for line in file.read_text().splitlines())
    return [line[kind] for line in lines if kind in line]


def test_on_delta_it_has_no_feature_that_it_does_not_need(delta: DeltaSandbox) -> None:
    """Protects from tables that readers refuse, though the session's tables have features that they do not read."""
    delta.spark.conf.set("spark.databricks.delta.properties.defaults.enableDeletionVectors", "true")
    try:
        delta.source("t", SCHEMA, [(1, 1), (1, 1), (2, 3)])
        view = delta.view(BAG, publish="plain", on_change="rebuild", comment="it's {new}")
        view.refresh()
    finally:
        delta.spark.conf.unset("spark.databricks.delta.properties.defaults.enableDeletionVectors")
    delta.sql("delete from {t} where k = 2")
    view.refresh()
    is_published(view)
    assert actions(view, "protocol") == [{"minReaderVersion": 1, "minWriterVersion": 2}]
    (metadata,) = actions(view, "metaData")
    assert (metadata["description"], metadata["partitionColumns"]) == ("it's {new}", [])
    assert [add["path"] for add in actions(view, "add")] and len(actions(view, "remove")) == 1


@night
def test_on_delta_it_has_what_was_declared(delta: DeltaSandbox) -> None:
    """Protects from properties, names and clustering that are lost."""
    delta.source("t", SCHEMA, [(1, 1), (1, 1), (2, 3)])
    view = delta.view(BAG, publish="plain", on_change="rebuild", comment="it's {new}")
    view.refresh()
    delta.sql("delete from {t} where k = 2")
    view.refresh()
    options = {"table_properties": {"team": "sales", "delta.enableChangeDataFeed": "true"}, "cluster_by": ["w"]}
    view = delta.view(BAG, publish="plain", on_change="rebuild", **options)
    assert view.refresh().verdict == "nothing to do"
    delta.sql("insert into {t} values (5, 1), (4, 9), (3, 2)")
    view.refresh()
    is_published(view)
    (_, metadata), detail = actions(view, "metaData"), delta.spark.sql(f"describe detail delta.`{view.path}`").first()
    assert metadata["configuration"]["team"] == "sales" and "description" not in metadata  # type: ignore[index]
    assert detail is not None and list(detail["clusteringColumns"]) == ["w"]

    view = delta.view("select k as `a b`, v as `A,c` from t", publish="plain", on_change="rebuild")
    view.refresh()
    assert view.address.reader_features == ("columnMapping",)
    assert published(view) == Counter(tuple(row) for row in view.answer().collect())
    delta.sql("insert into {t} values (7, 7)")
    view.refresh()
    delta.view(BAG, publish="plain", on_change="rebuild").refresh()
    assert view.warehouse.view("v", BAG).answer().count() == delta.spark.read.format("delta").load(view.path).count()


def test_what_others_do_to_its_schema_and_another_current_catalog_do_no_harm(delta: DeltaSandbox) -> None:
    """Protects from a column or deletion vectors that stay, and from a table that is made in another catalog."""
    catalog = "spark.sql.catalog.elsewhere"
    for key, value in {
        catalog: "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
        f"{catalog}.url": "jdbc:derby:memory:elsewhere;create=true",
        f"{catalog}.driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    }.items():
        delta.spark.conf.set(key, value)
    delta.source("t", SCHEMA, [(1, 1), (2, 3)])
    view = delta.view(GROUPED, publish="plain")
    delta.spark.sql("use elsewhere")
    try:
        view.refresh()
    finally:
        delta.spark.sql("use spark_catalog")
    is_published(view)
    delta.spark.sql(f"alter table delta.`{view.path}` add column x int")
    delta.spark.sql(f"alter table delta.`{view.path}` set tblproperties (delta.enableDeletionVectors = true)")
    delta.sql("insert into {t} values (2, 1)")
    view.refresh()
    assert published(view) == Counter(tuple(row) for row in view.answer().collect())
    delta.sql("insert into {t} values (2, 1)")
    view.refresh()
    assert len(actions(view, "metaData")) == 4  # created, changed twice by others, and once by us


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_others_may_read_answers_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from answers that nobody else can read, and from rows of sources and states that everybody can."""

    def mode(place: str) -> int:
        return stat.S_IMODE((tmp_path / "wh" / place).stat().st_mode)

    (tmp_path / "drop").mkdir()
    (tmp_path / "drop" / "a.csv").write_text("id\n1\n")
    warehouse = Warehouse(spark, tmp_path / "wh")
    warehouse.source("s", Files(str(tmp_path / "drop"), "csv", "id int"))
    warehouse.land("s")
    view = warehouse.view("v", "SELECT max(n) m FROM (SELECT id, count(*) n FROM s GROUP BY id)")
    view.refresh()
    own, top = (path.relative_to(tmp_path / "wh") for path in (folder_of(view) / PLAIN, folder_of(view)))
    for place in ("", "views", top, own, own / "_delta_log", top / "g1"):
        assert (place, mode(str(place))) == (place, 0o755)
    assert (folder_of(view) / "current.json").stat().st_mode & 0o044 == 0o044
    private = ["landed/s", "sources", "quarantine", top / "journal", top / "g1" / "state_1"]
    assert {str(place): mode(str(place)) for place in private} == dict.fromkeys(map(str, private), 0o700)
    assert mode(str(top / ".lock")) == 0o600
