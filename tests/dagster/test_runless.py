"""Commands report to Dagster: what its pages show of landings, refreshes and checks that no run of it has done."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from filelock import FileLock
from typer.testing import CliRunner, Result

from deltafold.algebra.errors import SourceError
from deltafold.algebra.results.report import Landing, Report
from deltafold.cli import commands as cli
from deltafold.cli import orchestrator
from deltafold.cli.orchestrator import Landed, Refreshed, Verified
from deltafold.dagster import following, metadata, runless
from deltafold.dagster.dataset_step import CHECK
from deltafold.pipelines import catalogue, descriptions
from tests.cli.pretended import ADDRESS, DESCRIPTION, DIFFERENT, EQUAL, REPORT, PretendedView, pretend
from tests.dagster import sales
from tests.dagster.shown import located, outdated
from tests.pipelines.declared import PARTITIONED, write

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

LANDED, RATES, VIEW = dg.AssetKey(["shop", "landed", "sales"]), dg.AssetKey("rates"), dg.AssetKey("shop")
DAILY = "partitions: {kind: daily, start: 2024-05-01}\n"
DAYS = ("2024-05-01", "2024-05-02")
REFRESH = replace(REPORT, versions={"sales": (None, 1), "rates": (None, 7)})


class Pages:
    """A pipeline, an instance that forgets, and what Dagster's pages make of it."""

    def __init__(self, folder: Path, cut: str = DAILY) -> None:
        write(folder, "shop", f"{PARTITIONED}  rates: {{delta: rates}}\n{cut}")
        self.pipeline = catalogue.load("shop", folder)
        self.instance = dg.DagsterInstance.ephemeral()
        self.world = PretendedView()
        self.view: Any = self.world.opened()[1]
        descriptions.save_description(self.pipeline, DESCRIPTION, print)
        self.defined = located(self.pipeline)

    def landed(self, version: int, landed: tuple[str, ...], unchanged: tuple[str, ...] = ()) -> None:
        landing = Landing(
            source="sales",
            version=version,
            landed=landed,
            unchanged=unchanged,
            removed=(),
            rows=10 * len(landed),
            seconds=1.0,
        )
        runless.report_to(self.instance, [Landed(self.pipeline, landing)])

    def refreshed(self, **changed: Any) -> None:
        self.world.reports = (replace(REFRESH, **changed),)
        runless.report_to(self.instance, [Refreshed(self.pipeline, self.view, self.world.reports[-1])])

    def told(self, key: dg.AssetKey) -> Mapping[str, Any]:
        event = self.instance.get_latest_materialization_event(key)
        assert event is not None and event.asset_materialization is not None
        return {name: value.value for name, value in event.asset_materialization.metadata.items()}

    def seen(self, key: dg.AssetKey) -> object:
        """The version of the last observation."""
        [record] = self.instance.fetch_observations(key, limit=1).records
        assert record.asset_observation is not None
        return record.asset_observation.metadata["version"].value

    def stale(self) -> dict[str, list[str]]:
        return outdated(self.defined, self.instance)

    def asks(self) -> bool:
        """Whether the sensor asks for a refresh."""
        context = dg.build_sensor_context(self.instance, repository_def=self.defined.get_repository_def())
        return bool(self.defined.resolve_sensor_def("shop_follow").evaluate_tick(context).run_requests)


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


def test_landing_refresh_and_check_are_shown_and_nothing_is_outdated(pages: Pages) -> None:
    """Protects from «Never materialized» on a full warehouse, from yellow marks, and from a refresh that is not due."""
    assert "shop" in pages.stale()
    pages.landed(1, DAYS)
    assert pages.asks()
    pages.refreshed()
    runless.report_to(pages.instance, [Verified(pages.pipeline, pages.view, EQUAL)])
    assert pages.instance.get_materialized_partitions(LANDED) == set(DAYS)
    assert (pages.told(LANDED)["partition"], pages.told(LANDED)["rows landed"]) == ("landed", 20)
    assert (pages.told(VIEW)["epoch"], pages.told(VIEW)["dagster/row_count"]) == (3, 2)
    assert pages.seen(RATES) == 7
    assert pages.stale() == {}
    assert not pages.asks()
    pages.landed(2, ("2024-05-03",), DAYS)
    pages.refreshed(epoch=4, versions={"sales": (1, 2), "rates": (7, 8)})
    assert pages.seen(RATES) == 8
    assert pages.stale() == {}
    assert not pages.asks()


def test_a_report_compiles_nothing(pages: Pages) -> None:
    """Protects from reports that analyse the query again, which took as long as a small refresh."""
    pages.view.description = None
    pages.landed(1, DAYS)
    pages.refreshed()
    shown = pages.told(VIEW)
    assert (shown["plan"], shown["dagster/row_count"]) == (DESCRIPTION.mode, len(pages.world.rows))


def test_a_run_after_commands_finds_the_code_and_the_data_unchanged(pages: Pages) -> None:
    """The tags are those of a run: a changed query, and a newer version of a table, are seen as in any asset."""
    pages.landed(1, DAYS)
    pages.refreshed()
    seen = dg.AssetObservation(RATES, tags={"dagster/data_version": "8"}, metadata={"version": 8})
    pages.instance.report_runless_asset_event(seen)
    assert pages.stale() == {"shop": ["has a new dependency data version"]}
    pages.refreshed(epoch=4, versions={"sales": (1, 1), "rates": (7, 8)})
    assert pages.stale() == {}
    (pages.pipeline.folder / "query.sql").write_text("SELECT 2 * count(*) AS n FROM sales")
    changed = catalogue.load("shop", pages.pipeline.folder.parent)
    descriptions.save_description(changed, DESCRIPTION, print)
    pages.defined = located(changed)
    assert pages.stale()["shop"] == ["has a new code version"]


def test_what_dagster_missed_is_caught_up(pages: Pages) -> None:
    """Protects those who name an instance later: partitions, versions and epochs of commands that reported nothing."""
    pages.landed(4, (), DAYS)  # nothing is new, and Dagster has never heard of any of it
    assert pages.instance.get_materialized_partitions(LANDED) == set(DAYS)
    assert pages.told(LANDED)["partition"] == "unchanged since it was landed"
    count = event_count(pages.instance, LANDED)
    pages.landed(4, (), DAYS)
    assert event_count(pages.instance, LANDED) == count
    pages.landed(6, (), DAYS)  # a correction that was not reported, or a compaction
    assert pages.told(LANDED)["version"] == 6
    assert event_count(pages.instance, LANDED) == (count := count + 1)
    pages.landed(7, ("2024-05-02",), ("2024-04-30", "2024-05-01", "2999-01-01"))  # days that are no partitions
    assert pages.instance.get_materialized_partitions(LANDED) == set(DAYS)
    assert event_count(pages.instance, LANDED) == count + 1
    runless.report_to(pages.instance, [Verified(pages.pipeline, pages.view, DIFFERENT)])
    assert pages.told(VIEW)["epoch"] == 3


def test_a_check_is_of_the_last_materialisation(pages: Pages) -> None:
    """Protects from a check that the pages show as one of older data, and from rows in the event database."""
    pages.refreshed()
    runless.report_to(pages.instance, [Verified(pages.pipeline, pages.view, DIFFERENT)])
    check = dg.AssetCheckKey(VIEW, CHECK)
    [record] = pages.instance.event_log_storage.get_latest_asset_check_execution_by_key([check]).values()
    found = record.evaluation
    assert found is not None and found.target_materialization_data is not None
    assert (found.passed, found.description) == (False, "shop differs.")
    assert found.metadata["extra rows"].value == 2
    assert "sample" not in found.metadata
    last = following.last_event(pages.instance, VIEW)
    assert last is not None and found.target_materialization_data.storage_id == last.storage_id


def test_dynamic_partitions_are_registered_before_they_are_reported(tmp_path: Path) -> None:
    pages = Pages(tmp_path, "partitions: {kind: dynamic}\n")
    pages.landed(1, ("monday", "tuesday"))
    pages.refreshed()
    assert set(pages.instance.get_dynamic_partitions("shop")) == {"monday", "tuesday"}
    assert pages.instance.get_materialized_partitions(LANDED) == {"monday", "tuesday"}
    assert pages.stale() == {}
    pages.landed(2, ("monday",), ("tuesday",))
    assert pages.stale()["shop"] == ["has a new dependency data version"]
    pages.refreshed(epoch=4, versions={"sales": (1, 2)})
    assert pages.stale() == {}


def test_a_table_that_is_not_cut_is_one_asset(tmp_path: Path) -> None:
    write(tmp_path, "shop")
    pipeline, instance = catalogue.load("shop", tmp_path), dg.DagsterInstance.ephemeral()
    for landed, unchanged in (("*",), ()), ((), ("*",)), ((), ("*",)):
        landing = Landing(
            source="sales", version=0, landed=landed, unchanged=unchanged, removed=(), rows=len(landed), seconds=1.0
        )
        runless.report_to(instance, [Landed(pipeline, landing)])
    assert event_count(instance, LANDED) == 1


def test_the_sensor_does_not_undo_a_rollback(pages: Pages) -> None:
    pages.landed(5, DAYS)
    pages.refreshed(versions={"sales": (None, 5)})
    pages.refreshed(generation=2, epoch=1, verdict="rolled back", versions={"sales": (None, 3)})
    assert pages.told(VIEW)["verdict"] == "rolled back"
    assert not pages.asks()
    pages.landed(6, ("2024-05-03",))
    assert pages.asks()


def test_the_sensor_waits_while_a_command_reports(pages: Pages) -> None:
    """Protects from a run for a landing whose refresh is done, and reported a second later."""
    pages.landed(1, DAYS)
    assert pages.asks()
    with FileLock(following.report_lock(pages.pipeline)):
        assert not pages.asks()
    assert pages.asks()


def test_views_below_are_reported_first_and_only_when_they_moved(tmp_path: Path) -> None:
    sales.declare(tmp_path)
    write(tmp_path, "top", "sources:\n  low: {view: sales}\n", sql="SELECT count(*) AS n FROM low")
    top, instance = catalogue.load("top", tmp_path), dg.DagsterInstance.ephemeral()
    below = pretended_view("sales")
    view = pretended_view("top", low=below)
    first = Report(
        view="sales",
        epoch=1,
        generation=1,
        verdict="applied",
        sentence="sales: epoch 1 applied",
        versions={"sales": (None, 0)},
    )
    for verdict in ("applied", "nothing to do"):
        done = Report(
            view="top",
            epoch=1,
            generation=1,
            verdict=verdict,
            sentence="top",
            versions={"view sales": (None, 3)},
            below=(replace(first, verdict=verdict),),
        )
        runless.report_to(instance, orchestrator.report_refresh(top, view, done))
    assert (event_count(instance, dg.AssetKey("sales")), event_count(instance, dg.AssetKey("top"))) == (1, 2)
    event = instance.get_latest_materialization_event(dg.AssetKey("top"))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.metadata[metadata.CONSUMED].value == {"low": "1.1"}
    assert (event.asset_materialization.tags or {})["dagster/input_data_version/sales"] == "1.1"


def pretended_view(name: str, **views: Any) -> Any:
    return SimpleNamespace(
        description=lambda: replace(DESCRIPTION, name=name, states=()),
        count=lambda: 1,
        address=ADDRESS,
        history=tuple,
        catalog=SimpleNamespace(views=views),
    )


def event_count(instance: dg.DagsterInstance, key: dg.AssetKey) -> int:
    return len(instance.fetch_materializations(key, limit=1000).records)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The home of an instance on disk, and a pipeline whose Spark is pretended."""
    home, folder = tmp_path / "home", tmp_path / "pipelines"
    home.mkdir()
    write(folder, "shop", PARTITIONED + "  shops: {delta: shops, invariant: true}\n" + DAILY)
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(folder))
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    yield home


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, arguments)


def test_commands_report_where_dagster_home_is_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = pretend(monkeypatch)
    printed = call("run", "shop")
    assert (printed.exit_code, printed.stderr.splitlines()[-1]) == (0, "shop: reporting to Dagster")
    assert call("verify", "shop").exit_code == 0
    world.fails = SourceError("gone")
    assert call("backfill", "shop", "--from", "2024-06-01", "--to", "2024-06-02").exit_code == 4
    with dg.DagsterInstance.get() as instance:
        days = {"2024-05-01", "2024-05-02", "2024-05-03"}
        assert instance.get_materialized_partitions(LANDED) == days  # the failed refresh's landing too
        assert event_count(instance, VIEW) == 1
        [check] = instance.event_log_storage.get_latest_asset_check_execution_by_key(
            [dg.AssetCheckKey(VIEW, CHECK)]
        ).values()
        assert check.status.value == "SUCCEEDED"


@pytest.mark.parametrize("broken", ["relative/home", "{home}/nowhere", "{home}"])
def test_a_broken_instance_is_one_warning(home: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """Protects the refresh from the orchestrator."""
    pretend(monkeypatch)
    (home / "dagster.yaml").write_text("no_such_part: [\n")
    monkeypatch.setenv("DAGSTER_HOME", broken.format(home=home))
    printed = call("run", "shop")
    assert printed.exit_code == 0
    [warning] = [line for line in printed.stderr.splitlines() if not line.startswith("shop: ")]
    assert warning.startswith("not reported to Dagster in ")
    assert "Traceback" not in printed.stderr


def test_commands_do_without_dagster(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    monkeypatch.setattr(orchestrator, "REPORTER", "assets.no_such_module")
    assert "ModuleNotFoundError" in call("run", "shop").stderr
    monkeypatch.delenv("DAGSTER_HOME")
    assert "Dagster" not in call("run", "shop").stderr
    assert [file.name for file in home.iterdir()] == ["dagster.yaml"]
