"""Automation conditions over a Delta table that somebody else writes: its version is seen, and the view follows."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import deltafold.dagster as df
from deltafold.pipelines.declaration.parsing import DeclarationError
from tests.dagster import sales
from tests.dagster.test_project import Pretended, revenue

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning"),
]
TABLE, VIEW = dg.AssetKey(["raw", "orders"]), dg.AssetKey(["marts", "revenue"])
MINUTELY: Any = dg.AutomationCondition.on_cron("* * * * *")
EAGER: Any = dg.AutomationCondition.eager()
EAGER_OF_SOME: Any = EAGER.without(~dg.AutomationCondition.any_deps_missing())
ON_CRON: Any = MINUTELY.ignore(dg.AssetSelection.assets(TABLE))


class Daemon:
    """A code location whose automation conditions are evaluated once a minute; what they request is run at once."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, condition: Any) -> None:
        watched = df.watched_table(dg.AssetSpec(TABLE, automation_condition=MINUTELY), str(folder / "orders"))
        view = df.maintained_view(
            dg.AssetSpec(VIEW, automation_condition=condition),
            "SELECT count(*) AS n FROM orders",
            sources={"orders": df.TableSource(str(folder / "orders"), asset="raw/orders")},
            warehouse=str(folder / "warehouse"),
        )
        self.defined = dg.Definitions(assets=[watched, view], resources={"deltafold": Pretended()})
        self.instance = instance
        self.now = datetime(2026, 11, 29, 6, tzinfo=UTC)
        self.cursor = None

    def tick(self) -> set[dg.AssetKey]:
        """Evaluate all conditions a minute later, and return what they request."""
        self.now += timedelta(minutes=1)
        evaluated = dg.evaluate_automation_conditions(
            self.defined,
            self.instance,
            dg.AssetSelection.all(include_sources=True),
            evaluation_time=self.now,
            cursor=self.cursor,
        )
        self.cursor = evaluated.cursor
        asked = {key for key in (TABLE, VIEW) if evaluated.get_num_requested(key)}
        if asked:
            job = self.defined.resolve_implicit_global_asset_job_def()
            assert job.execute_in_process(instance=self.instance, asset_selection=list(asked)).success
        return asked


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as found:
        yield found


@pytest.mark.parametrize("condition", [EAGER, ON_CRON], ids=["eager", "on_cron"])
def test_a_version_that_somebody_else_wrote_is_followed(
    tmp_path: Path, instance: dg.DagsterInstance, condition: Any
) -> None:
    sales.commit(tmp_path / "orders", 3)
    daemon = Daemon(tmp_path, instance, condition)
    for version in (3, 4):
        sales.commit(tmp_path / "orders", version)
        before = len(instance.fetch_materializations(VIEW, limit=9).records)
        asked = [daemon.tick() for _ in range(3)]
        assert TABLE in set.union(*asked)
        observed = instance.fetch_observations(TABLE, limit=1).records[0].asset_observation
        assert observed is not None and (observed.tags or {})["dagster/data_version"] == str(version)
        assert len(instance.fetch_materializations(VIEW, limit=9).records) > before
    if condition == EAGER:
        assert VIEW not in set.union(*(daemon.tick() for _ in range(2)))  # the table is observed, and has not changed


@pytest.mark.parametrize(("condition", "requests"), [(EAGER, 0), (EAGER_OF_SOME, 2)], ids=["eager", "of some"])
def test_a_dataset_over_days_follows_each_without_waiting_for_all(
    instance: dg.DagsterInstance, condition: Any, requests: int
) -> None:
    @dg.asset(key=TABLE, partitions_def=dg.DailyPartitionsDefinition("2026-11-20"))
    def orders() -> None: ...

    sources = {"orders": df.TableSource("orders", asset="raw/orders")}
    asked = dg.AssetSpec(VIEW, automation_condition=condition)
    view = df.maintained_view(asked, "SELECT count(*) AS n FROM orders", sources=sources, warehouse="warehouse")
    defined = dg.Definitions(assets=[orders, view], resources={"deltafold": Pretended()})
    start = datetime(2026, 11, 29, 6, tzinfo=UTC)
    cursor = None
    counted = 0
    for minute in range(5):
        if minute in (1, 3):
            instance.report_runless_asset_event(dg.AssetMaterialization(TABLE, partition=f"2026-11-2{minute}"))
        evaluated = dg.evaluate_automation_conditions(
            defined, instance, evaluation_time=start + timedelta(minutes=minute), cursor=cursor
        )
        cursor = evaluated.cursor
        if evaluated.get_num_requested(VIEW):
            counted += 1
            instance.report_runless_asset_event(dg.AssetMaterialization(VIEW))
    assert counted == requests


def test_a_watched_table_is_as_its_spec_says(tmp_path: Path) -> None:
    sales.commit(tmp_path / "orders", 3)
    minutely: Any = dg.AutomationCondition.on_cron("* * * * *")
    asked = dg.AssetSpec(
        ["raw", "orders"],
        group_name="raw",
        owners=["team:shop"],
        tags={"tier": "bronze"},
        kinds={"deltalake", "fivetran"},
        automation_condition=minutely,
        metadata={"slack": "#shop"},
    )
    watched = df.watched_table(asked, str(tmp_path / "orders"))
    defined = dg.Definitions(assets=[watched, revenue()], resources={"deltafold": Pretended()})
    node = defined.resolve_asset_graph().get(asked.key)
    assert (node.group_name, node.owners, node.kinds) == ("raw", ["team:shop"], {"deltalake", "fivetran"})
    assert (node.tags["tier"], node.automation_condition) == ("bronze", minutely)
    assert node.metadata["slack"] == "#shop" and node.metadata["dagster/uri"] == str(tmp_path / "orders")
    assert node.is_observable and not node.is_materializable and node.child_keys == {*revenue().keys}
    [table] = dg.map_asset_specs(lambda spec: asked, df.source_tables(revenue()))
    assert next(iter(table.specs)).owners == ["team:shop"]
    [plain] = df.watched_table("raw/orders", "x").specs
    assert plain.kinds == {"deltalake"} and plain.description == "A Delta table that others write."
    with pytest.raises(DeclarationError, match="asset days: partitions_def"):
        df.watched_table(dg.AssetSpec("days", partitions_def=dg.DailyPartitionsDefinition("2026-01-01")), "x")
