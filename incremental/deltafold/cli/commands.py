"""Define the command line `deltafold`: text or JSON on standard output, and an exit code.

Only this package uses the command-line library. Results go to standard
output; progress and errors go to standard error; Spark prints nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from deltafold import __version__, telemetry
from deltafold.cli import rendering, scaffold
from deltafold.cli.backfill import check_range
from deltafold.cli.branching import home_of_branch
from deltafold.cli.exit_codes import UNEQUAL, UNEXPECTED, USAGE, Commands
from deltafold.cli.hosting import hosts
from deltafold.cli.opened import open_pipeline
from deltafold.cli.options import ChunkOption, JsonOption, NameArgument, PartitionOption, SampleOption
from deltafold.cli.pipes import answer_pipes
from deltafold.cli.progress import show_progress, show_warnings
from deltafold.pipelines import catalogue, descriptions
from deltafold.pipelines.declaration import sizes
from deltafold.pipelines.listening import server as listening
from deltafold.pipelines.status import declaration_row, status_row

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
app.add_typer(hosts, name="host")
app.command("step", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(answer_pipes)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"deltafold {__version__}")
        raise typer.Exit


@app.callback()
def _options(
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


def _print(as_json: bool, facts: Any, text: str) -> None:
    print(json.dumps(facts, indent=2, default=str, ensure_ascii=False) if as_json else text)


@app.command()
def new(
    name: NameArgument,
    mrql: Annotated[bool, typer.Option("--mrql", help="Write its query in MRQL, not in SQL.")] = False,
) -> None:
    """Create a working pipeline with sample data."""
    home = scaffold.make(name, catalogue.home_of_new(), mrql)
    shown_as = home.relative_to(Path.cwd()) if home.is_relative_to(Path.cwd()) else home
    print(f"Created {shown_as}. Run it: deltafold run {name}")


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Gets the demo's pipelines, data and warehouse.")
    ] = Path("deltafold-demo"),
) -> None:
    """Run the demo: a year of flights arrives, and three pipelines follow it."""
    from deltafold.demo.demo import run_demo  # needed by this command alone

    if not run_demo(folder.absolute()):
        raise typer.Exit(UNEQUAL)


@app.command()
def run(
    name: NameArgument,
    land: Annotated[bool, typer.Option("--land/--no-land", help="Land new files first.")] = True,
    partition: PartitionOption = None,
    chunk: ChunkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Land changed files and refresh the view, after the pipelines whose views it reads."""
    if partition and not land:
        raise typer.BadParameter("--partition: it cannot be combined with --no-land. Remove one of them.")
    asked = partition or ()
    with open_pipeline(name, chunk is None, lambda pipeline: catalogue.check_partitions(pipeline, asked)) as opened:
        landings: tuple[Any, ...] = ()
        below: dict[str, tuple[Any, ...]] = {each.name: () for each in opened.pipeline.chain}
        if land:
            below = opened.land_below()
            landings = opened.land(asked)
        report = opened.refresh(chunk)
    facts = {"landings": [asdict(landing) for landing in landings], "report": json.loads(report.to_json())}
    facts |= {"below": {each: [asdict(landing) for landing in done] for each, done in below.items()}} if below else {}
    first = {
        each: rendering.render_run(done, [r for r in report.below if r.view == each]) for each, done in below.items()
    }
    _print(as_json, facts, "\n".join([*filter(None, first.values()), rendering.render_run(landings, [report])]))


@app.command()
def backfill(
    name: NameArgument,
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
    _print(as_json, facts, rendering.render_run(landings, [report]))


@app.command()
def replay(
    name: NameArgument,
    source: Annotated[str | None, typer.Option("--source", metavar="SOURCE", help="Replay this source only.")] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Replay a stream even if it has fewer records than were landed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Land partitions with quarantined rows again, by the current schema; a named stream from its beginning."""
    with open_pipeline(name, True, lambda pipeline: catalogue.sources_to_replay(pipeline, source)) as opened:
        landings = opened.replay(source, allow_loss)
    _print(as_json, [asdict(landing) for landing in landings], rendering.render_replays(name, landings))


@app.command()
def rebuild(name: NameArgument, chunk: ChunkOption = None, as_json: JsonOption = False) -> None:
    """Rebuild the view from its sources, as a new generation."""
    with open_pipeline(name) as opened:
        opened.step("rebuilding")
        report = opened.refresh(chunk, rebuild=True)
    _print(as_json, json.loads(report.to_json()), rendering.render_report(report))


@app.command()
def explain(name: NameArgument) -> None:
    """Explain how the query is maintained; no data is read."""
    with open_pipeline(name, brief=True) as opened:
        text = opened.view.explain()
        descriptions.save_descriptions(opened.pipeline, opened.view, opened.step)
    print(text)


@app.command()
def verify(name: NameArgument, sample: SampleOption = "100%", as_json: JsonOption = False) -> None:
    """Compare the view with the batch query on the same source versions."""
    with open_pipeline(name) as opened:
        found = opened.verify(sizes.share_of(sample))
    _print(as_json, asdict(found), rendering.render_verification(found))
    if not found.ok:
        raise typer.Exit(UNEQUAL)


@app.command()
def history(name: NameArgument, as_json: JsonOption = False) -> None:
    """List finished refreshes."""
    with open_pipeline(name, brief=True) as opened:
        reports = opened.view.history()
    _print(as_json, [json.loads(report.to_json()) for report in reports], rendering.render_history(reports))


@app.command()
def show(
    name: NameArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Print at most this many rows.")] = 20,
    quarantine: Annotated[
        str | None, typer.Option("--quarantine", metavar="SOURCE", help="Show the malformed rows of this source.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the answer of the last finished refresh, or the malformed rows of a source."""

    def check(pipeline: catalogue.Pipeline) -> None:
        if quarantine is not None:
            catalogue.require_landed(pipeline, quarantine)

    with open_pipeline(name, True, check) as opened:
        if quarantine is None:
            answer = opened.view.answer()
        else:
            answer = opened.warehouse.quarantine(quarantine)
        rows = answer.limit(limit + 1).collect()
    more = f"\n(the first {limit:,} rows; --limit shows more)" if len(rows) > limit else ""
    rows = rows[:limit]
    _print(as_json, [row.asDict(recursive=True) for row in rows], rendering.table(answer.columns, rows) + more)


@app.command()
def path(name: NameArgument, as_json: JsonOption = False) -> None:
    """Print the path of the answer's current Delta table (starts no Spark for a local one)."""
    address = catalogue.address(catalogue.load(name))
    _print(as_json, asdict(address), address.path)


@app.command()
def maintain(
    name: NameArgument,
    retain: Annotated[float, typer.Option("--retain", min=0, help="Keep the versions of the last HOURS.")] = 168,
    buckets: Annotated[int | None, typer.Option("--buckets", min=1, help="Use this many buckets from now on.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compact the tables of a view and its landed sources, and remove old files."""
    with open_pipeline(name) as opened:
        copied = opened.refresh_by(partial(opened.view.rebucket, buckets, opened.step)) if buckets else None
        done = opened.maintain(retain)
    first = [] if copied is None else [rendering.render_report(copied)]
    _print(as_json, asdict(done), "\n".join([*first, rendering.render_upkeep(done)]))


@app.command()
def rollback(
    name: NameArgument,
    epoch: Annotated[int, typer.Argument(metavar="EPOCH", help="A finished epoch, as shown by `history`.")],
    generation: Annotated[int | None, typer.Option("--generation", help="Its generation (default: the last).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Roll a view back to an earlier epoch; the next run continues from there."""
    with open_pipeline(name) as opened:
        report = opened.refresh_by(lambda: opened.view.rollback(epoch, generation, opened.step))
    _print(as_json, json.loads(report.to_json()), rendering.render_report(report))


@app.command()
def branch(
    name: NameArgument, new: Annotated[str, typer.Argument(metavar="NEW", help="The new pipeline's name.")]
) -> None:
    """Create a branch: a new pipeline that starts from this one's last epoch."""
    with open_pipeline(name, True, lambda pipeline: home_of_branch(pipeline, new)) as opened:
        opened.branch(new)
    print(f"Created {new} from the last epoch of {name}. Change its query, then: deltafold rebuild {new}")


@app.command()
def listen(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where clients connect; PORT is on 127.0.0.1.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Gets a partition of files for each minute.")],
    remote: Annotated[bool, typer.Option("--remote", help="Let other machines connect, too.")] = False,
) -> None:
    """Write lines from a socket into files that a source lands (starts no Spark)."""
    listening.serve(address, folder, remote, lambda at: print(f"{folder}: listening on {at}", flush=True))


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the declared pipelines (starts no Spark)."""
    found = catalogue.survey_pipelines()
    _print(
        as_json,
        [declaration_row(name, pipeline) for name, pipeline in found.items()],
        rendering.render_catalogue(found, catalogue.pipelines_folder()),
    )
    _exit_if_invalid(found)


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show age, lag, size and interrupted work of each pipeline."""
    found, opened = catalogue.survey_pipelines(), dict[str, Any]()
    rows = []
    with show_progress("starting Spark") as say:
        for name, pipeline in found.items():
            say(f"{name}: reading status")
            rows.append(status_row(name, pipeline, opened))
    _print(as_json, rows, rendering.render_status(rows))
    _exit_if_invalid(found)


def _exit_if_invalid(found: dict[str, Any]) -> None:
    if any(isinstance(pipeline, Exception) for pipeline in found.values()):
        raise typer.Exit(USAGE)


@app.command()
def doctor(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Check with this pipeline's settings.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine's setup, and a store by trying it; exit code 70 if something is missing."""
    found = catalogue.examine_setup(catalogue.load(name) if name else None)
    _print(as_json, [asdict(finding) for finding in found], rendering.render_findings(found))
    if not all(finding.ok for finding in found):
        raise typer.Exit(UNEXPECTED)


def main() -> None:
    """Run the command `deltafold`."""
    app(prog_name="deltafold")


if __name__ == "__main__":
    main()
