"""Steps whose body is the user's, as of @dbt_assets, without Java."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import deltafold.dagster as df
from deltafold.algebra.errors import UsageError
from deltafold.pipelines.declaration.parsing import DeclarationError
from tests.dagster import sales
from tests.dagster.test_project import Pretended, revenue

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning"),
]
DONE: list[object] = []


class Desk(dg.ConfigurableResource):
    """A resource of the user's."""

    name: str


class Asked(df.RefreshConfig):
    """A config of the user's."""

    note: str = ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pipelines of which `top` reads `sales`."""
    sales.declare_readers(tmp_path)
    DONE.clear()
    return tmp_path


def run(assets: dg.AssetsDefinition, **more: Any) -> dg.ExecuteInProcessResult:
    """Run a step whose Spark is pretended."""
    return dg.materialize([assets], resources={"deltafold": Pretended(), "desk": Desk(name="finance")}, **more)


def test_a_body_has_resources_and_a_config_of_its_own(folder: Path) -> None:
    @df.maintained_assets(folder, exclude="other", translator=df.DeltafoldTranslator(key_prefix=["marts"]))
    def marts(context: dg.AssetExecutionContext, config: Asked, desk: Desk) -> Any:
        DONE.append((desk.name, config.note, config.rebuild))
        for result in df.refresh_assets(context):
            if isinstance(result, dg.MaterializeResult):
                context.add_asset_metadata({"desk": desk.name}, asset_key=result.asset_key)
            yield result
        DONE.append("refreshed")

    config = {"ops": {"marts": {"config": {"note": "monthly", "rebuild": True}}}}
    done = run(marts, run_config=config, selection=[dg.AssetKey(["marts", "top"])])
    [event] = done.get_asset_materialization_events()
    made = event.materialization
    assert made.asset_key == dg.AssetKey(["marts", "top"]) and made.metadata["desk"].value == "finance"
    assert made.metadata["dagster/row_count"].value == 1 and len(done.get_asset_check_evaluations()) == 1
    assert DONE == [("finance", "monthly", True), "refreshed"]
    assert marts.required_resource_keys - {"io_manager"} == {"deltafold", "desk"}


def test_the_config_of_a_run_reaches_the_refresh_of_any_body(folder: Path) -> None:
    class Seeing(Pretended):
        def run(self, context: object, pipeline: Any, task: Any) -> object:
            DONE.append((pipeline.name, getattr(task, "rebuild", None)))
            return super().run(context, pipeline, task)

    @df.maintained_assets(folder, name="nightly", select="tag:nightly", equals_batch=False)
    def body(context) -> Any:
        """Refresh, and return the results instead of yielding them."""
        return df.refresh_assets(context)

    for assets, name in ((body, "nightly"), (df.deltafold_assets(folder, select="top", name="whole"), "whole")):
        config = {"ops": {name: {"config": {"rebuild": True}}}}
        assert dg.materialize([assets], resources={"deltafold": Seeing()}, run_config=config).success
        wrong: Any = {"ops": {name: {"config": {"rebuidl": True}}}}
        with pytest.raises(dg.DagsterInvalidConfigError, match="rebuidl"):
            dg.materialize([assets], resources={"deltafold": Seeing()}, run_config=wrong)
    assert DONE.count(("top", True)) == 2


def test_a_body_that_could_not_refresh_is_refused(folder: Path) -> None:
    class Theirs(dg.Config):
        note: str = ""

    def bare() -> None: ...
    def configured(context, config: Theirs) -> None: ...
    def forgetful(context, desk: Desk) -> None:
        df.refresh_assets(context)

    with pytest.raises(UsageError, match=r"step bare: its body does not take `context`\. Make that"):
        df.maintained_assets(folder)(bare)
    with pytest.raises(
        UsageError, match=r"step configured: .* Derive its class from deltafold\.dagster\.RefreshConfig"
    ):
        df.maintained_assets(folder)(configured)
    with pytest.raises(UsageError, match="resource_key `config`: it is not the name of a parameter"):
        revenue(resource_key="config")
    with pytest.raises(dg.Failure, match="step marts__revenue__refresh: its body refreshed nothing"):
        run(revenue(body=forgetful))
    with pytest.raises(UsageError, match="step raw: it maintains no dataset"):

        @dg.asset
        def raw(context: dg.AssetExecutionContext) -> None:
            df.refresh_assets(context)

        dg.materialize([raw])


def test_a_body_that_drops_results_fails(folder: Path) -> None:
    """Protects from a green run in which a dataset was not refreshed, or a failed check is not seen."""

    def halfway(context: dg.AssetExecutionContext) -> Any:
        results = df.refresh_assets(context)
        yield next(results)

    def idle(context: dg.AssetExecutionContext) -> Any:
        [*df.refresh_assets(context)][:0]
        yield from ()

    def checkless(context: dg.AssetExecutionContext) -> Any:
        yield from (each for each in df.refresh_assets(context) if isinstance(each, dg.MaterializeResult))

    for body, fault in (
        (halfway, "ended before refresh_assets did"),
        (idle, "left out results of refresh_assets: other, other equals_batch, sales, sales equals_batch, top, top eq"),
        (checkless, "left out results of refresh_assets: other equals_batch, sales equals_batch, top equals_batch"),
    ):
        with pytest.raises(dg.Failure, match=f"step {body.__name__}: its body {fault}"):
            run(df.maintained_assets(folder)(body))


def test_a_body_that_hides_a_failure_fails(folder: Path) -> None:
    class Failing(Pretended):
        def run(self, context: object, pipeline: Any, task: Any) -> object:
            raise dg.Failure("the disk is full", allow_retries=False)

    @df.maintained_assets(folder)
    def nightly(context: dg.AssetExecutionContext) -> Any:
        try:
            yield from df.refresh_assets(context)
        except dg.Failure as failure:
            context.log.warning(str(failure))

    with pytest.raises(dg.Failure, match=r"ended before refresh_assets did\. .* or let an error pass"):
        dg.materialize([nightly], resources={"deltafold": Failing()})


def test_a_body_may_return_one_result_or_change_it() -> None:
    def changed(context: dg.AssetExecutionContext) -> Any:
        [result] = df.refresh_assets(context)
        assert isinstance(result, dg.MaterializeResult)
        return dg.MaterializeResult(metadata={**(result.metadata or {}), "mine": 1}, data_version=result.data_version)

    done = run(revenue(body=changed))
    [event] = done.get_asset_materialization_events()
    assert event.materialization.metadata["mine"].value == 1

    def unversioned(context: dg.AssetExecutionContext) -> Any:
        for result in df.refresh_assets(context):
            yield dg.MaterializeResult(asset_key=result.asset_key)

    with pytest.raises(dg.Failure, match="its body made a result without a data version"):
        run(revenue(body=unversioned))

    async def later(context: dg.AssetExecutionContext) -> None: ...

    with pytest.raises(UsageError, match="its body is asynchronous"):
        revenue(body=later)


def test_what_would_fail_later_is_refused_at_once(folder: Path) -> None:
    """Protects from assets that are absent without a word, and from a check that never runs."""
    with pytest.raises(UsageError, match=r"Write @maintained_assets\(PIPELINES\)"):
        df.maintained_assets(lambda context: None)  # pyright: ignore[reportArgumentType]

    class Renamed(df.DeltafoldTranslator):
        def get_asset_check_spec(self, pipeline: Any, check: dg.AssetCheckSpec) -> dg.AssetCheckSpec:
            return dg.AssetCheckSpec("mine", asset=check.asset_key)

    with pytest.raises(DeclarationError, match="its check `equals_batch` has another name or asset"):
        df.deltafold_assets(folder, translator=Renamed())
    wrong = run(
        df.deltafold_assets(folder, name="all"), run_config={"ops": {"all": {"config": {"sample": "50"}}}},
        raise_on_error=False,
    )  # fmt: skip
    [failure] = [event for event in wrong.all_node_events if event.is_step_failure]
    assert "config `sample`: `50` is not a share. Write for example 1%" in str(failure.step_failure_data)
    assert not [event for event in wrong.all_node_events if event.is_step_up_for_retry]


def test_two_selections_of_a_folder_are_two_steps(folder: Path) -> None:
    steps = [df.deltafold_assets(folder, exclude="other"), df.deltafold_assets(folder, select="other")]
    assert len({step.op.name for step in steps}) == 2
    defs = dg.Definitions(steps, resources={"deltafold": Pretended()})
    assert defs.resolve_asset_graph().get_all_asset_keys() >= {dg.AssetKey("other")}


def test_a_dataset_without_a_description_shows_none_of_ours(folder: Path) -> None:
    [spec] = [spec for spec in df.deltafold_assets(folder).specs if spec.key == dg.AssetKey("other")]
    assert spec.description == "An answer that Deltafold keeps current."


def test_partitions_of_a_landing_are_the_days_of_its_folders(tmp_path: Path) -> None:
    """Protects from a partition of which a part is landed, and the step is green."""
    sales.declare(tmp_path)
    for wrong in (
        dg.HourlyPartitionsDefinition("2024-05-05-00:00"),
        dg.WeeklyPartitionsDefinition("2024-05-05", hour_offset=6),
        dg.StaticPartitionsDefinition(["a"]),
        dg.DynamicPartitionsDefinition(name="theirs"),
    ):
        with pytest.raises(DeclarationError, match="the partitions of its asset do not consist of whole days"):
            df.landing_assets(tmp_path, translator=sales.Partitioned(wrong))
    home = tmp_path / "dynamic"
    sales.declare(home, sales.DYNAMIC)
    with pytest.raises(DeclarationError, match="the partitions of its asset do not consist of whole days"):
        df.landing_assets(
            home, translator=sales.Partitioned(dg.WeeklyPartitionsDefinition("2024-05-05", hour_offset=6))
        )
    assert df.landing_assets(home, translator=sales.Partitioned(dg.StaticPartitionsDefinition(["a"])))


def test_an_asset_may_stand_for_its_key(tmp_path: Path) -> None:
    @dg.asset(key=["raw", "orders"])
    def orders() -> None: ...

    def read(source: Any) -> dg.AssetsDefinition:
        query = "SELECT count(*) AS n FROM orders"
        return df.maintained_view("n", query, sources={"orders": source}, warehouse=str(tmp_path))

    for named in (orders, orders.key, "raw/orders"):
        [dep] = read(df.TableSource("/lake/orders", asset=named)).specs_by_key[dg.AssetKey("n")].deps
        assert dep.asset_key == orders.key
    with pytest.raises(UsageError, match="source orders: AssetKey is no table and no maintained view"):
        read(orders.key)
