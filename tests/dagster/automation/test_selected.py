"""Schedules of datasets that are selected in dbt's grammar, without Java."""

from pathlib import Path

import dagster as dg
import pytest

import deltafold.dagster as df
from deltafold.algebra.errors import UsageError
from deltafold.pipelines.declaration.parsing import DeclarationError
from tests.dagster import sales
from tests.dagster.test_project import QUERY, Pretended, revenue

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pipelines of which `top` reads `sales`."""
    sales.declare_readers(tmp_path)
    return tmp_path


def selected(*assets: dg.AssetsDefinition, select: str, exclude: str = "") -> set[str]:
    selection = df.select_datasets(*assets, select=select, exclude=exclude)
    return {key.to_user_string() for key in selection.resolve([*assets])}


def test_a_schedule_is_made_of_a_selection(folder: Path) -> None:
    datasets = df.deltafold_assets(folder, translator=df.DeltafoldTranslator(key_prefix=["marts"]))
    schedule = df.selection_schedule(
        datasets, name="nightly", cron_schedule="0 3 * * *", select="+tag:nightly", tags={"team": "finance"}
    )
    resources = {"deltafold": Pretended()}
    repository = dg.Definitions(assets=[datasets], schedules=[schedule], resources=resources).get_repository_def()
    assert (schedule.name, schedule.cron_schedule, schedule.job_name) == ("nightly_schedule", "0 3 * * *", "nightly")
    job = repository.get_job("nightly")
    assert job.tags["team"] == "finance"
    done = job.execute_in_process()
    made = {event.asset_key.path[-1] for event in done.get_asset_materialization_events() if event.asset_key}
    assert made == {"sales", "top"} and len(done.get_asset_check_evaluations()) == 2
    assert selected(datasets, select="other top", exclude="tag:nightly") == {"marts/other"}
    assert selected(revenue(), select="marts__*") == {"marts/revenue"}
    steps = df.pipeline_steps(folder)
    assert selected(*steps, select="sales+") == {"sales", "top"} == selected(*steps, select="+top")
    with pytest.raises(DeclarationError, match=r"^select tob: it matches no dataset\. Did you mean `top`"):
        selected(datasets, select="tob")
    with pytest.raises(UsageError, match="dataset other: another step has one of this name"):
        selected(datasets, *steps, select="top")


def test_a_selection_of_a_project_lands_what_it_reads(tmp_path: Path) -> None:
    files = "{{files: {{path: {0}, format: csv, schema: 'customer STRING, amount INT'}}}}"
    sources = "\n".join(f"  {name}: {files.format(name)}" for name in ("orders", "refunds"))
    (tmp_path / "pipeline.yaml").write_text(f"sources:\n{sources}\ndatasets: '*.sql'\n")
    for name, query in {"sums": QUERY, "back": "SELECT count(*) AS n FROM refunds"}.items():
        (tmp_path / f"{name}.sql").write_text(query)
    project, some = df.deltafold_assets(tmp_path), df.deltafold_assets(tmp_path, select="back")
    home = tmp_path.name
    assert selected(project, select="sums") == {f"{home}/sums", f"{home}/landed/orders"}
    assert len(df.select_datasets(project).resolve([project])) == 4
    with pytest.raises(DeclarationError, match=rf"select sums: the step of {home} has none of these datasets"):
        selected(some, select="sums")
    with pytest.raises(UsageError, match=rf"project {home}: its names are its own"):
        selected(project, revenue(), select="sums")
