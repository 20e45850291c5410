"""Define the command line `deltafold`: text or JSON on standard output, and an exit code.

Results go to standard output; progress and errors go to standard error; Spark prints nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltafold import __version__, telemetry
from deltafold.cli import project, rendering, scaffold
from deltafold.cli.exit_codes import BUSY, DATA, UNEQUAL, UNEXPECTED, USAGE, Commands, code_of
from deltafold.cli.opened import check_range, open_pipeline
from deltafold.cli.orchestrator import answer_pipes
from deltafold.cli.rendering import show_progress, show_warnings
from deltafold.cli.scaffold import home_of_branch
from deltafold.pipelines import catalogue, descriptions, folder_project, listening
from deltafold.pipelines.catalogue import declaration_row, status_row
from deltafold.pipelines.declaration.values import check_share, check_size, share_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from deltafold.api import Landing, View
    from deltafold.pipelines.open_project import OpenProject
    from deltafold.pipelines.project_selection import Selection
    from deltafold.spark.host.wanted import WantedSpark


def _check_option(check: Callable[[str], str]) -> Callable[[str | None], str | None]:
    """Return an option callback that reports a ValueError of `check` as a usage error."""

    def run_check(text: str | None) -> str | None:
        try:
            return None if text is None else check(text)
        except ValueError as error:
            raise typer.BadParameter(f"{error}.") from None

    return run_check


OptionalName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Of this pipeline's master, memory and settings.")
]
PartitionOption = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="VALUE", help="Land only this partition, compared by content (repeatable)."),
]
ChunkOption = Annotated[
    str | None,
    typer.Option(
        "--chunk", metavar="SIZE", callback=_check_option(check_size), help="Split changes into chunks of SIZE (2g)."
    ),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.", show_default=False)]
DATASET = "/"  # between the name of a pipeline and that of one of its datasets
ViewArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A pipeline, PIPELINE/DATASET, or a project's dataset.", show_default=False),
]
SampleOption = Annotated[
    str,
    typer.Option(
        "--sample", metavar="SHARE", callback=_check_option(check_share), help="Verify this share of the keys (1%)."
    ),
]
SpecOption = Annotated[
    Path | None,
    typer.Option("--spec", metavar="FILE", help="The specification of a project.", show_default=False),
]
DbtOption = Annotated[
    Path | None,
    typer.Option("--dbt", metavar="FILE", help="The target/manifest.json of a dbt project.", show_default=False),
]
TablesOption = Annotated[
    str | None,
    typer.Option(
        "--tables",
        metavar="DIR",
        help="Where sources of dbt are, as DIR/SCHEMA/NAME, if in no catalog.",
        show_default=False,
    ),
]
SelectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        "-s",
        metavar="TEXT",
        help="Refresh only these datasets, as dbt selects: a+, +a, tag:t, path:DIR (repeatable).",
        show_default=False,
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="TEXT", help="Leave these datasets out (repeatable).", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

HELP = """\
Keeps the answers of the declared pipelines up to date by processing only changed data.

Exit codes: 0 success; 1 the view does not equal the batch query; 2 invalid usage, declaration or query;
3 query refused by the compiler, or changed since the view was built; 4 error in a source, its data, the stored state,
the catalog or the disk, or a loop that does not end; 5 busy: another process works on the same; 70 any other error;
75 Spark ended during the work: run again.

Pipelines are the folders with a pipeline.yaml below --pipelines, else $DELTAFOLD_PIPELINES, else ./pipelines.
If $DAGSTER_HOME is set, commands report landings, refreshes and verifications to that Dagster instance.
"""
app = typer.Typer(
    cls=Commands,
    help=HELP,
    rich_markup_mode=None,  # plain help and usage errors, on a terminal too
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
hosts = typer.Typer(no_args_is_help=True, help="Keep a Spark warm, for commands and runs to attach to.")
app.add_typer(hosts, name="host")
app.command("step", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(answer_pipes)


def _show_version(asked: object) -> None:
    if asked:
        print(f"deltafold {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
    pipelines: Annotated[
        Path | None, typer.Option("--pipelines", metavar="DIR", help="The folder of pipelines.", show_default=False)
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if pipelines is not None:
        os.environ[catalogue.FOLDER_VARIABLE] = str(pipelines.absolute())  # for processes that this one starts, too
    show_warnings()
    telemetry.switch_on()


def _print(facts: Any, text: str, *, as_json: bool) -> None:
    print(json.dumps(facts, indent=2, default=str, ensure_ascii=False) if as_json else text)


@app.command()
def new(
    name: NameArgument,
    *,
    mrql: Annotated[bool, typer.Option("--mrql", help="Write its query in MRQL, not in SQL.")] = False,
    sql: Annotated[
        Path | None,
        typer.Option("--sql", metavar="FILE", help="Its query, instead of sample data.", show_default=False),
    ] = None,
    delta: Annotated[
        list[str] | None,
        typer.Option("--delta", metavar="SOURCE=PATH", help="A Delta table that the query reads (repeatable)."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Its data: a CSV, JSON or Parquet file.", show_default=False),
    ] = None,
) -> None:
    """Create a working pipeline: of a query over Delta tables (--sql, --delta), of a file (--from), or of samples."""
    if sql is not None and mrql:
        raise typer.BadParameter("--sql: it cannot be combined with --mrql. Remove one of them.")
    if sql is not None and not delta:
        raise typer.BadParameter("--sql: it needs the tables that the query reads. Add --delta SOURCE=PATH for each.")
    if delta and sql is None:
        raise typer.BadParameter("--delta: it needs the query over the table. Add --sql FILE.")
    if file is not None and (sql is not None or mrql):
        raise typer.BadParameter("--from: it cannot be combined with --sql, --delta or --mrql. Remove one of them.")
    folder = catalogue.home_of_new()
    columns = ""
    if file is not None:
        source = _infer_source(name, folder, file)
        home = scaffold.make_of_file(name, folder, source)
        columns = "\n".join(f"  {column} {type}" for column, type in source.columns.items())
    elif sql is not None:
        home = scaffold.make_of_query(name, folder, sql, delta or ())
    else:
        home = scaffold.make(name, folder, mrql=mrql)
    shown_as = home.relative_to(Path.cwd()) if home.is_relative_to(Path.cwd()) else home
    print(f"Created {shown_as}. Run it: deltafold run {name}")
    if columns:
        print(f"Check the types in {shown_as}/{catalogue.DECLARATION_FILE}:\n{columns}")


def _infer_source(name: str, folder: Path, file: Path) -> scaffold.FileSource:
    """Return a file as a source, with the types that Spark infers."""
    format = scaffold.check_file(file)
    scaffold.check_new(name, folder)
    from deltafold.spark import session

    with show_progress(f"{name}: starting Spark") as say:
        spark = session.start(f"deltafold {name}", brief=True)
        say(f"{file.name}: inferring the schema")
        return scaffold.infer_source(file.absolute(), format, spark)


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Gets the demo's pipelines, data and warehouse.")
    ] = Path("deltafold-demo"),
    *,
    as_project: Annotated[
        bool,
        typer.Option("--project", help="Refresh a project of Spark Declarative Pipelines beside Spark's own tool."),
    ] = False,
) -> None:
    """Run the demo: a year of flights arrives, and three pipelines follow it."""
    if as_project:
        from deltafold.demo.project_demo import run_project_demo as play
    else:
        from deltafold.demo.demo import run_demo as play  # needed by this command alone
    if not play(folder.absolute()):
        raise typer.Exit(UNEQUAL)


@app.command()
def run(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The pipeline's name.")] = None,
    *,
    land: Annotated[bool, typer.Option("--land/--no-land", help="Land new files first.")] = True,
    partition: PartitionOption = None,
    chunk: ChunkOption = None,
    spec: SpecOption = None,
    dbt: DbtOption = None,
    tables: TablesOption = None,
    refresh: Annotated[
        list[str] | None,
        typer.Option("--refresh", metavar="NAMES", help="Refresh only these datasets of a project (a,b)."),
    ] = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", metavar="NAMES", help="Rebuild these datasets of a project (a,b)."),
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="Rebuild all datasets of a project, or all that are selected.")
    ] = False,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Land changed files and refresh the view, after the pipelines whose views it reads; or all datasets of NAME.

    Without NAME: refresh the datasets of the spark-pipeline.yml in this folder or around it, or of a dbt project.
    """
    if name is not None and DATASET in name:
        pipeline, _, dataset = name.partition(DATASET)
        raise typer.BadParameter(f"{name}: name the pipeline, and select: deltafold run {pipeline} --select {dataset}")
    if name is None or folder_project.is_project(catalogue.pipelines_folder() / name):
        if partition or chunk:
            raise typer.BadParameter("--partition and --chunk: they need the NAME of a pipeline of one query. Add it.")
        from deltafold.pipelines.project_selection import Selection

        selection = Selection(
            refresh=project.names_in(refresh),
            full_refresh=project.names_in(full_refresh),
            full_refresh_all=full_refresh_all,
            select=tuple(select or ()),
            exclude=tuple(exclude or ()),
        )
        work = "much" if selection.full_refresh or selection.full_refresh_all else "refresh"
        _run_project(_project_of(spec, dbt, tables, name, work=work), selection, land=land, as_json=as_json)
        return
    if spec or dbt or refresh or full_refresh or full_refresh_all or select or exclude:
        raise typer.BadParameter(
            f"--spec, --dbt, --select, --exclude, --refresh and --full-refresh are for many datasets, and {name} is a "
            "pipeline of one query. Leave NAME or them out."
        )
    if partition and not land:
        raise typer.BadParameter("--partition: it cannot be combined with --no-land. Remove one of them.")
    partitions = partition or ()

    def check(pipeline: catalogue.Pipeline) -> None:
        catalogue.check_partitions(pipeline, partitions)

    with open_pipeline(name, brief=chunk is None, check=check) as opened:
        below: dict[str, tuple[Landing, ...]] = {pipeline.name: () for pipeline in opened.pipeline.chain}
        landings: tuple[Landing, ...] = ()
        if land:
            below = opened.land_below()
            landings = opened.land(partitions)
        report = opened.refresh(chunk)
    facts: dict[str, Any] = {"landings": list(map(asdict, landings)), "report": json.loads(report.to_json())}
    if below:
        facts["below"] = {view: list(map(asdict, landed)) for view, landed in below.items()}
    lines = [
        rendering.render_run(landed, [refreshed for refreshed in report.below if refreshed.view == view])
        for view, landed in below.items()
    ]
    _print(facts, "\n".join([*filter(None, lines), rendering.render_run(landings, [report])]), as_json=as_json)


def _project_of(
    spec: Path | None, dbt: Path | None, tables: str | None, name: str | None = None, *, work: project.Work = "much"
) -> AbstractContextManager[tuple[OpenProject, rendering.Say]]:
    """Return the project that the options name, not yet opened; name: a pipeline with datasets; work: what for."""
    if name is not None:
        if spec or dbt or tables:
            raise typer.BadParameter(
                f"{name}: --spec, --dbt and --tables are for other projects. Leave the name or them out; quote several "
                'names of one option, --exclude "a b".'
            )
        return project.open_folder_project(name, work=work)
    if spec is not None and dbt is not None:
        raise typer.BadParameter("--dbt: it cannot be combined with --spec. Remove one of them.")
    if dbt is not None:
        return project.open_dbt_project(dbt, tables, work=work)
    if tables is not None:
        raise typer.BadParameter("--tables: it needs --dbt. Remove it.")
    return project.open_project(project.locate_spec(spec, Path.cwd()), work=work)


def _run_project(
    opening: AbstractContextManager[tuple[OpenProject, rendering.Say]],
    selection: Selection,
    *,
    land: bool,
    as_json: bool,
) -> None:
    from deltafold.pipelines.project_run import run_project

    with opening as (opened, say):
        landings = opened.land(say) if land else ()
        opened.check()
        opened.open_possible(selection.work(opened.reads))
        report = run_project(opened, selection, rendering.show_datasets(say))
    text = "\n".join([*map(rendering.render_landing, landings), project.render_pipeline(report)])
    facts = {"landings": [asdict(landing) for landing in landings]} if landings else {}
    _print(facts | json.loads(report.to_json()), text, as_json=as_json)
    if code := project.exit_code(report):
        raise typer.Exit(code)


@app.command("dry-run")
def dry_run(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A pipeline with datasets.")] = None,
    *,
    spec: SpecOption = None,
    dbt: DbtOption = None,
    tables: TablesOption = None,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    describe: Annotated[
        bool, typer.Option("--describe", help="Write the datasets of a spark-pipeline.yml beside it, for Dagster.")
    ] = False,
) -> None:
    """Check the datasets of a project, and print what each reads; no table is read or written."""
    if describe and (name or dbt or select or exclude):
        raise typer.BadParameter("--describe: it is for a whole spark-pipeline.yml. Remove it, or the others.")
    with _project_of(spec, dbt, tables, name, work="little") as (opened, say):
        from deltafold.pipelines.open_project import ProjectRefusedError
        from deltafold.pipelines.project_selection import Selection

        selected = Selection(select=tuple(select or ()), exclude=tuple(exclude or ())).work(opened.reads)
        text = project.render_graph(opened, opened.open_possible(selected, create=False), selected)
        refusals = "\n".join((*opened.project.refusals, *opened.find_refusals(selected)))
        if describe and not refusals:
            from deltafold.pipelines.project_files import write_description

            path = project.locate_spec(spec, Path.cwd())
            say(f"{opened.project.name}: datasets written to {write_description(path, opened)}")
    print(text)
    if refusals:
        raise ProjectRefusedError(refusals)


@app.command()
def backfill(
    name: NameArgument,
    *,
    first: Annotated[str, typer.Option("--from", metavar="VALUE", help="The first partition.")],
    last: Annotated[str, typer.Option("--to", metavar="VALUE", help="The last partition, included.")],
    chunk: ChunkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Land a range of partitions and refresh the view once; run again to resume."""
    with open_pipeline(name, check=lambda pipeline: check_range(pipeline, first, last)) as opened:
        landings = opened.backfill(first, last)
        report = opened.refresh(chunk)
    facts = {"landings": [asdict(landing) for landing in landings], "report": json.loads(report.to_json())}
    _print(facts, rendering.render_run(landings, [report]), as_json=as_json)


@app.command()
def replay(
    name: NameArgument,
    *,
    source: Annotated[str | None, typer.Option("--source", metavar="SOURCE", help="Replay this source only.")] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Replay a stream even if it has fewer records than were landed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Land partitions with quarantined rows again, by the current schema; a named stream from its beginning."""
    with open_pipeline(
        name, brief=True, check=lambda pipeline: catalogue.sources_to_replay(pipeline, source)
    ) as opened:
        landings = opened.replay(source, allow_loss=allow_loss)
    _print([asdict(landing) for landing in landings], rendering.render_replays(name, landings), as_json=as_json)


@app.command()
def rebuild(name: NameArgument, *, chunk: ChunkOption = None, as_json: JsonOption = False) -> None:
    """Rebuild the view from its sources, as a new generation."""
    _refuse_dataset(name, f"deltafold run --full-refresh {name}")
    with open_pipeline(name) as opened:
        opened.step("rebuilding")
        report = opened.refresh(chunk, rebuild=True)
    _print(json.loads(report.to_json()), rendering.render_report(report), as_json=as_json)


def _find_project(
    name: str, spec: Path | None, dbt: Path | None, tables: str | None, *, work: project.Work = "little"
) -> tuple[AbstractContextManager[tuple[OpenProject, rendering.Say]], str] | None:
    """Return the project of a dataset, not yet opened, and the dataset's name in it; None for a pipeline of one query.

    The project is the one that the options name, a pipeline with datasets (PIPELINE/DATASET), or the spark-pipeline.yml
    around this folder. work: what for.
    """
    if spec or dbt or tables:
        return _project_of(spec, dbt, tables, work=work), name
    if DATASET in name:
        pipeline, _, dataset = name.partition(DATASET)
        return project.open_folder_project(pipeline, work=work), dataset
    if name not in catalogue.names() and (found := project.find_spec(Path.cwd())) is not None:
        return project.open_project(found, work=work), name
    return None


def _find_dataset(
    name: str, spec: Path | None, dbt: Path | None, tables: str | None, *, work: project.Work = "little"
) -> AbstractContextManager[View] | None:
    """Return the view of one dataset, not yet opened, as `_find_project` finds it."""
    found = _find_project(name, spec, dbt, tables, work=work)
    return None if found is None else project.open_dataset(*found)


def _refuse_dataset(name: str, instead: str) -> None:
    """Raise DeclarationError for a name that is no pipeline where a project of datasets is around this folder."""
    if name not in catalogue.names() and (spec := project.find_spec(Path.cwd())) is not None:
        raise catalogue.DeclarationError(f"{name}: it is no pipeline. Run `{instead}` for the datasets of {spec}.")


@app.command()
def explain(name: ViewArgument, *, spec: SpecOption = None, dbt: DbtOption = None, tables: TablesOption = None) -> None:
    """Explain how the query is maintained; no data is read."""
    if (dataset := _find_dataset(name, spec, dbt, tables)) is not None:
        with dataset as view:
            print(view.explain())
        return
    with open_pipeline(name, brief=True) as opened:
        text = opened.view.explain()
        descriptions.save_descriptions(opened.pipeline, opened.view, opened.step)
    print(text)


@app.command()
def verify(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A pipeline, PIPELINE/DATASET, or a project's dataset.")
    ] = None,
    *,
    sample: SampleOption = "100%",
    spec: SpecOption = None,
    dbt: DbtOption = None,
    tables: TablesOption = None,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the view with the batch query on the same source versions; or all datasets of a project, or some.

    Without NAME: those of the spark-pipeline.yml in this folder or around it, or of a dbt project.
    """
    if name is None or folder_project.is_project(catalogue.pipelines_folder() / name):
        from deltafold.pipelines.project_selection import Selection

        selection = Selection(select=tuple(select or ()), exclude=tuple(exclude or ()))
        _verify_project(_project_of(spec, dbt, tables, name), selection, share_of(sample), as_json=as_json)
        return
    if select or exclude:
        raise typer.BadParameter(f"--select and --exclude are for a whole project, and {name} is not. Leave one out.")
    if (dataset := _find_dataset(name, spec, dbt, tables, work="much")) is not None:
        with dataset as view:
            verification = view.verify(share_of(sample))
    else:
        with open_pipeline(name) as opened:
            verification = opened.verify(share_of(sample))
    _print(asdict(verification), rendering.render_verification(verification), as_json=as_json)
    if not verification.ok:
        raise typer.Exit(UNEQUAL)


def _verify_project(
    opening: AbstractContextManager[tuple[OpenProject, rendering.Say]],
    selection: Selection,
    share: float,
    *,
    as_json: bool,
) -> None:
    with opening as (opened, say):
        done, faults, never = project.verify_all(opened, selection, share, say)
    lines = [
        *map(rendering.render_verification, done.values()),
        *(f"{name}: it was never refreshed, so there is nothing to compare" for name in never),
        *(f"FAILED {name}: {error}" for name, error in faults.items()),
    ]
    facts = {
        "datasets": {name: asdict(verification) for name, verification in done.items()},
        "never_refreshed": never,
        "errors": {name: str(error) for name, error in faults.items()},
    }
    _print(facts, "\n".join(lines) or "No dataset is maintained.", as_json=as_json)
    if not all(verification.ok for verification in done.values()):
        raise typer.Exit(UNEQUAL)
    if faults:
        raise typer.Exit(code_of(next(iter(faults.values()))))
    if never and not done:
        raise typer.Exit(DATA)


@contextmanager
def _open_brief(name: str, check: Callable[[catalogue.Pipeline], object] | None = None) -> Generator[View]:
    """Open the view of a pipeline for little work; check: as of `open_pipeline`."""
    with open_pipeline(name, brief=True, check=check) as opened:
        yield opened.view


@app.command()
def history(
    name: ViewArgument,
    *,
    spec: SpecOption = None,
    dbt: DbtOption = None,
    tables: TablesOption = None,
    as_json: JsonOption = False,
) -> None:
    """List finished refreshes."""
    with _find_dataset(name, spec, dbt, tables) or _open_brief(name) as view:
        reports = view.history()
    _print([json.loads(report.to_json()) for report in reports], rendering.render_history(reports), as_json=as_json)


@contextmanager
def _open_rows(
    name: str,
    found: tuple[AbstractContextManager[tuple[OpenProject, rendering.Say]], str] | None,
    source: str | None,
) -> Generator[DataFrame]:
    """Open the answer of a pipeline or of a dataset of a project, or the malformed rows of a source."""
    if source is not None and folder_project.is_project(catalogue.pipelines_folder() / name):
        found = project.open_folder_project(name, work="little"), name
    if found is not None:
        opening, dataset = found
        with opening as (opened, _):
            yield opened.answer(dataset) if source is None else opened.warehouse.quarantine(source)
        return

    def check(pipeline: catalogue.Pipeline) -> None:
        if source is not None:
            catalogue.require_landed(pipeline, source)

    with _open_brief(name, check) as view:
        yield view.answer() if source is None else view.warehouse.quarantine(source)


@app.command()
def show(
    name: ViewArgument,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Print at most this many rows.")] = 20,
    quarantine: Annotated[
        str | None, typer.Option("--quarantine", metavar="SOURCE", help="Show the malformed rows of this source.")
    ] = None,
    spec: SpecOption = None,
    dbt: DbtOption = None,
    tables: TablesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the answer of the last finished refresh, or the malformed rows of a source."""
    with _open_rows(name, _find_project(name, spec, dbt, tables), quarantine) as answer:
        rows = answer.limit(limit + 1).collect()
    more = f"\n(the first {limit:,} rows; --limit shows more)" if len(rows) > limit else ""
    rows = rows[:limit]
    _print([row.asDict(recursive=True) for row in rows], rendering.table(answer.columns, rows) + more, as_json=as_json)


@app.command()
def path(
    name: ViewArgument,
    *,
    spec: SpecOption = None,
    dbt: DbtOption = None,
    tables: TablesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the path of the answer's current Delta table (starts no Spark for that of a local pipeline)."""
    if (dataset := _find_dataset(name, spec, dbt, tables)) is not None:
        with dataset as view:
            address = view.address
    else:
        address = catalogue.address(catalogue.load(name))
    _print(asdict(address), address.path, as_json=as_json)


@app.command()
def maintain(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The pipeline's name.")] = None,
    *,
    retain: Annotated[float, typer.Option("--retain", min=0, help="Keep the versions of the last HOURS.")] = 168,
    buckets: Annotated[int | None, typer.Option("--buckets", min=1, help="Use this many buckets from now on.")] = None,
    spec: SpecOption = None,
    dbt: DbtOption = None,
    tables: TablesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compact the tables of a view and its landed sources, and remove old files; or those of all datasets of NAME.

    Without NAME: those of the spark-pipeline.yml in this folder or around it, or of a dbt project.
    """
    if spec or dbt or tables or name is None or folder_project.is_project(catalogue.pipelines_folder() / name):
        if buckets:
            raise typer.BadParameter("--buckets: it is for a pipeline of one query. Remove it.")
        with _project_of(spec, dbt, tables, name) as (opened_project, say):
            kept, faults = project.maintain_all(opened_project, retain, say)
        failed = [f"FAILED {dataset}: {error}" for dataset, error in faults.items()]
        _print(list(map(asdict, kept)), "\n".join([*map(rendering.render_upkeep, kept), *failed]), as_json=as_json)
        if faults:
            raise typer.Exit(code_of(next(iter(faults.values()))))
        return
    _refuse_dataset(name, "deltafold maintain")
    with open_pipeline(name) as opened:
        copied = opened.refresh_by(partial(opened.view.rebucket, buckets, opened.step)) if buckets else None
        done = opened.maintain(retain)
    first = [] if copied is None else [rendering.render_report(copied)]
    _print(asdict(done), "\n".join([*first, rendering.render_upkeep(done)]), as_json=as_json)


@app.command()
def rollback(
    name: NameArgument,
    epoch: Annotated[int, typer.Argument(metavar="EPOCH", help="A finished epoch, as shown by `history`.")],
    *,
    generation: Annotated[int | None, typer.Option("--generation", help="Its generation (default: the last).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Roll a view back to an earlier epoch; the next run continues from there."""
    with open_pipeline(name) as opened:
        report = opened.refresh_by(lambda: opened.view.rollback(epoch, generation, opened.step))
    _print(json.loads(report.to_json()), rendering.render_report(report), as_json=as_json)


@app.command()
def branch(
    name: NameArgument, new: Annotated[str, typer.Argument(metavar="NEW", help="The new pipeline's name.")]
) -> None:
    """Create a branch: a new pipeline that starts from this one's last epoch."""
    with open_pipeline(name, brief=True, check=lambda pipeline: home_of_branch(pipeline, new)) as opened:
        opened.branch(new)
    print(f"Created {new} from the last epoch of {name}. Change its query, then: deltafold rebuild {new}")


@app.command()
def listen(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where clients connect; PORT is on 127.0.0.1.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Gets a partition of files for each minute.")],
    *,
    remote: Annotated[bool, typer.Option("--remote", help="Let other machines connect, too.")] = False,
) -> None:
    """Write lines from a socket into files that a source lands (starts no Spark)."""
    listening.serve(address, folder, lambda at: print(f"{folder}: listening on {at}", flush=True), remote=remote)


@app.command("list")
def list_(*, as_json: JsonOption = False) -> None:
    """List the declared pipelines, one of many datasets with these (starts no Spark)."""
    pipelines = catalogue.survey_pipelines()
    projects = folder_project.survey_projects(catalogue.pipelines_folder(), pipelines)
    rows = [declaration_row(name, projects.get(name, pipeline)) for name, pipeline in pipelines.items()]
    text = rendering.render_catalogue(pipelines | projects, catalogue.pipelines_folder())
    if not rows and (spec := project.find_spec(Path.cwd())) is not None:
        text += f"\nThe datasets of {spec}: deltafold dry-run"
    _print(rows, text, as_json=as_json)
    _exit_if_invalid(pipelines | projects)


@app.command()
def status(
    *, spec: SpecOption = None, dbt: DbtOption = None, tables: TablesOption = None, as_json: JsonOption = False
) -> None:
    """Show age, lag, size and interrupted work of each pipeline and of its datasets, or of those of a project."""
    rows: list[dict[str, Any]] = []
    if spec or dbt or tables or (not catalogue.names() and project.find_spec(Path.cwd())):
        with _project_of(spec, dbt, tables, work="little") as (opened_project, say):
            rows.extend(project.status_rows(opened_project, say))
        _print(rows, rendering.render_status(rows), as_json=as_json)
        return
    pipelines = catalogue.survey_pipelines()
    if not pipelines:
        _print([], rendering.render_catalogue(pipelines, catalogue.pipelines_folder()), as_json=as_json)
        return
    opened: catalogue.Opened = {}
    projects = folder_project.survey_projects(catalogue.pipelines_folder(), pipelines)
    for name in [name for name, declared in projects.items() if not isinstance(declared, Exception)]:
        try:
            with project.open_folder_project(name, work="little") as (opened_project, say):
                rows.extend(project.status_rows(opened_project, say, f"{name}{DATASET}"))
        except catalogue.DeclarationError as error:
            projects[name] = error
    surveyed = pipelines | projects
    with show_progress("starting Spark") as say:
        for name, pipeline in surveyed.items():
            if not isinstance(pipeline, folder_project.DeclaredProject):
                say(f"{name}: reading status")
                rows.append(status_row(name, pipeline, opened))
    rows.sort(key=lambda row: row["name"])
    _print(rows, rendering.render_status(rows), as_json=as_json)
    _exit_if_invalid(surveyed)


def _exit_if_invalid(pipelines: Mapping[str, object]) -> None:
    if any(isinstance(pipeline, Exception) for pipeline in pipelines.values()):
        raise typer.Exit(USAGE)


@app.command()
def doctor(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Check with this pipeline's settings.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Check this machine's setup, and a store by trying it; exit code 70 if something is missing."""
    findings = catalogue.examine_setup(catalogue.load(name) if name else None)
    _print(list(map(asdict, findings)), rendering.render_findings(findings), as_json=as_json)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(UNEXPECTED)


@app.command()
def schema() -> None:
    """Print the JSON Schema of pipeline.yaml, for editors."""
    from deltafold.pipelines.declaration.json_schema import stored_schema

    print(stored_schema(), end="")


@hosts.command("start")
def start_host(
    name: OptionalName = None,
    idle: Annotated[float, typer.Option("--idle", min=0, help="End after MINUTES without guests; 0: never.")] = 15,
) -> None:
    """Start a Spark in the background, unless one runs already with the same settings."""
    from deltafold.spark.host import control

    running = control.start_host(replace(_read_wanted(name), idle_seconds=idle * 60))
    host = running.host
    end = f"It ends after {host.idle_seconds / 60:g} minutes without guests." if host.idle_seconds else ""
    print(f"Spark host: {host.spark} runs as process {host.process}. {end}".rstrip())


@hosts.command("status")
def list_hosts(*, as_json: JsonOption = False) -> None:
    """List the warm Sparks that run, and how many processes use each."""
    from deltafold.spark.host.control import list_running

    facts = [running.facts for running in list_running()]
    if as_json:
        print(json.dumps(facts, indent=2))
    elif facts:
        rows = [[host["spark"], host["process"], f"{host['guests']} of {host['most_guests']}"] for host in facts]
        print(rendering.table(["spark", "process", "guests"], rows))
    else:
        print("No Spark host runs. Start one: deltafold host start")


@hosts.command("stop")
def stop_hosts(
    name: OptionalName = None,
    *,
    now: Annotated[bool, typer.Option("--now", help="Also while processes use it: they fail.")] = False,
) -> None:
    """Stop the warm Spark of a pipeline's settings, or all of them."""
    from deltafold.spark.host import control

    file = _read_wanted(name).file if name else None
    hosts_running = [running for running in control.list_running() if file in (None, running.file)]
    busy = [running for running in hosts_running if running.guests and not now]
    for running in hosts_running:
        if running not in busy:
            control.stop_host(running)
            print(f"Spark host: {running.host.spark}, process {running.host.process}, has ended.")
    if not hosts_running:
        print("No Spark host runs.")
    for running in busy:
        host = running.host
        typer.echo(
            f"Spark host: {host.spark}, process {host.process}, has {running.guests} guests. "
            "Wait for their end, or stop it with --now.",
            err=True,
        )
    if busy:
        raise typer.Exit(BUSY)


def _read_wanted(name: str | None) -> WantedSpark:
    """Return the Spark that a pipeline declares, or the default one."""
    from deltafold.spark.host.wanted import WantedSpark

    part = catalogue.load(name).declaration.spark if name else None
    asked = part.model_dump(include={"master", "memory"}, exclude_none=True) if part else {}
    return WantedSpark(settings=part.settings if part else {}, **asked)


def main() -> None:
    """Run the command `deltafold`."""
    app(prog_name="deltafold")


if __name__ == "__main__":
    main()
