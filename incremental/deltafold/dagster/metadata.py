"""Turn the reports of landings, refreshes and checks into Dagster's metadata.

Dagster's pages interpret the names with `dagster/` (columns, row count, address); the others are the names in the
library's reports.
"""

import base64
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import dagster as dg

from deltafold.algebra.errors import explain_missing_packages
from deltafold.algebra.results.report import Description, Landing, Report, Verification
from deltafold.algebra.results.upkeep import Upkeep
from deltafold.pipelines import picture
from deltafold.pipelines.tasks import RefreshedView

Metadata = Mapping[str, dg.MetadataValue]

# The tags that a run sets, as they are stored: https://docs.dagster.io has no names for them.
DATA_VERSION = "dagster/data_version"
CODE_VERSION = "dagster/code_version"
BY_USER = "dagster/data_version_is_user_provided"
INPUT_VERSION = "dagster/input_data_version"
INPUT_EVENT = "dagster/input_event_pointer"
NO_VERSION = "INITIAL"
NO_EVENT = "NULL"

Input = tuple[str, int | None]
"""The data version of an asset, and the number of its event if that is stored already."""

LISTED_ROUNDS = 30  # rounds of a loop in a table

CONSUMED = "versions consumed"
"""The metadata name, in a view's materialisation, of the version up to which it has read each source, for programs."""


LOCATIONS = "locations"
"""The metadata name, in a view's materialisation, of the locations of the tables that it read by name."""


def version_tags(version: str, code: str, inputs: Mapping[dg.AssetKey, Input]) -> Mapping[str, str]:
    """Return the tags of a materialisation: its data version, and those of its inputs."""
    tags = {DATA_VERSION: version, BY_USER: "true", CODE_VERSION: code}
    for key, (input_version, number) in inputs.items():
        tags[_tag(INPUT_VERSION, key)] = input_version
        tags[_tag(INPUT_EVENT, key)] = NO_EVENT if number is None else str(number)
    return tags


def input_tags(versions: Mapping[dg.AssetKey, str]) -> dict[str, str]:
    """Return the tags of an asset for the versions of its inputs."""
    return {_tag(INPUT_VERSION, key): version for key, version in versions.items()}


def _tag(prefix: str, key: dg.AssetKey) -> str:
    """Return the name of a tag about one input."""
    return f"{prefix}/{key.to_user_string()}"


def table_version(key: dg.AssetKey, version: int, how: str) -> dg.AssetObservation:
    """Return the event of a Delta table that others write.

    Args:
        key: the asset of the table.
        version: the version that it has.
        how: the origin of that knowledge, in a few words.
    """
    return dg.AssetObservation(
        key, description=f"Version {version} {how}.", metadata={"version": version}, tags={DATA_VERSION: str(version)}
    )


def of_landing(landing: Landing) -> Metadata:
    """Return the metadata of one landing, over all its partitions."""
    return {
        "version": dg.MetadataValue.int(landing.version),
        "rows landed": dg.MetadataValue.int(landing.rows),
        "partitions landed": dg.MetadataValue.int(len(landing.landed)),
        "partitions unchanged": dg.MetadataValue.int(len(landing.unchanged)),
        "partitions removed": dg.MetadataValue.int(len(landing.removed)),
        "malformed rows left out": dg.MetadataValue.int(landing.left_out - landing.late),
        "late rows left out": dg.MetadataValue.int(landing.late),
        "closed rows kept": dg.MetadataValue.int(landing.kept),
        "rows in quarantine": dg.MetadataValue.int(sum(landing.quarantined.values())),
        "seconds": dg.MetadataValue.float(round(landing.seconds, 3)),
    }


WORDS = {
    "landed": "landed",
    "removed": "removed: its folder has no files any more",
    "unchanged": "unchanged since it was landed",
    "empty": "empty: it has no files",
}
"""What a landing did with a partition, by the name of the list that has it, and in words."""


def landed_version(landing: Landing, folders: Sequence[str] | None = None) -> str:
    """Return the data version of a landed table, or of some of its partitions, which stays while no row of it changes.

    That is the version that changed it last; of several partitions, with their number, which a removal changes.
    """
    if landing.versions is None:
        return str(landing.version)
    chosen = landing.versions if folders is None else folders
    known = [landing.versions[folder] for folder in chosen if folder in landing.versions]
    count = f".{len(known)}" if len(known) > 1 else ""
    return f"{max(known)}{count}" if known else "empty"


def of_partition(landing: Landing, folders: Sequence[str]) -> Metadata:
    """Return the metadata of one partition of a landed asset; folders: the keys of those that it consists of."""
    found = [next((word for word in WORDS if folder in getattr(landing, word, ())), "empty") for folder in folders]
    if len(folders) == 1:
        shown = WORDS[found[0]]
    else:
        counts = Counter(found)
        shown = ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word]) or "no folders"
    quarantined = dg.MetadataValue.int(sum(landing.quarantined.get(folder, 0) for folder in folders))
    return {"partition": dg.MetadataValue.text(shown), "rows in quarantine": quarantined}


def state_metadata(description: Description) -> Metadata:
    """Return the metadata of all state tables at once."""
    rows = [(state.name, ", ".join(state.keys) or "none", ", ".join(state.columns)) for state in description.states]
    return {"tables": _table(("table", "lineage key", "columns"), rows)}


def data_version(generation: object, epoch: object) -> str:
    """Return the data version of a view, which a view above it consumes."""
    return f"{generation}.{epoch}"


def read_versions(report: Report, below: Mapping[str, str]) -> Mapping[str, int | str]:
    """Return the version up to which a refresh has read each source; below: views that are sources, by source name."""
    tables = report.table_versions
    versions = {refreshed.view: data_version(refreshed.generation, refreshed.epoch) for refreshed in report.below}
    return tables | {source: versions[view] for source, view in below.items() if view in versions}


def of_refresh(report: Report, below: Mapping[str, str]) -> Metadata:
    """Return the work and cost of a refresh; below: views that are sources, by source name."""
    whole = {
        "epoch": report.epoch,
        "generation": report.generation,
        "rows in change": report.change_rows,
        "groups": report.groups,
        "rows read": report.rows_read,
        "rows written": report.rows_written,
        "jobs": report.jobs,
        "commits": report.commits,
    }
    phases = [(name, round(seconds, 2)) for name, seconds in report.phases.items()]
    return {
        "verdict": dg.MetadataValue.text(report.verdict),
        "summary": dg.MetadataValue.text(report.sentence),
        "versions": _versions(report.versions),
        CONSUMED: dg.MetadataValue.json(read_versions(report, below)),
        **({"because": dg.MetadataValue.text("\n".join(report.because))} if report.because else {}),
        **({"partitions touched": dg.MetadataValue.json(list(report.partitions))} if report.partitions else {}),
        "seconds": dg.MetadataValue.float(round(report.seconds, 3)),
        "phases": _table(("phase", "seconds"), phases),
        **_loops(report),
        **{name: dg.MetadataValue.int(number) for name, number in whole.items()},
    }


def _loops(report: Report) -> Metadata:
    """Return the rounds of a refresh's loops, how many rows each moved, and the residuals of loops to a tolerance."""
    if not report.rounds:
        return {}
    rows = [
        (loop, phase, len(moved), _first([f"{number:,}" for number in moved]))
        for loop, phases in report.rounds.items()
        for phase, moved in phases.items()
    ]
    residuals = [(loop, _first([f"{value:.3g}" for value in values])) for loop, values in report.residuals.items()]
    return {
        "loops": _table(("loop", "phase", "rounds", "rows in each"), rows),
        "rounds of loops": dg.MetadataValue.md(_rounds_picture(report)),
        **({"residuals": _table(("loop", "of each step"), residuals)} if residuals else {}),
    }


def _first(values: Sequence[str]) -> str:
    """Return the first values of a list in one cell of a table; the picture has all of them."""
    return ", ".join([*values[:LISTED_ROUNDS], *(["…"] if len(values) > LISTED_ROUNDS else [])])


def view_metadata(done: RefreshedView) -> Metadata:
    """Return the columns, row count, location and plan of a view, and the cost of its refreshes."""
    return {
        **of_columns(done.description),
        "dagster/row_count": dg.MetadataValue.int(done.rows),
        "dagster/uri": dg.MetadataValue.text(done.address.path),
        **({"dagster/table_name": dg.MetadataValue.text(done.address.publish_as)} if done.address.publish_as else {}),
        "plan": dg.MetadataValue.text(done.description.mode),
        "explain": dg.MetadataValue.md(f"```\n{done.description.explain}\n```"),
        "cost": dg.MetadataValue.md(_cost_picture(done.history, done.description.name)),
    }


def of_columns(description: Description) -> dict[str, dg.MetadataValue]:
    """Return the columns of a view."""
    columns = [dg.TableColumn(name, kind) for name, kind in description.columns]
    return {"dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns))}


def of_lineage(description: Description, sources: Mapping[str, dg.AssetKey]) -> dict[str, dg.MetadataValue]:
    """Return the columns that each column of a view is computed from, and the columns of which this is not known.

    The pages of Dagster's open edition leave out `dagster/column_lineage`, so a table has the same.

    Args:
        description: that of the compiled view.
        sources: the assets of its sources, by name.
    """
    lineage = {
        name: [dg.TableColumnDep(sources[source], column) for source, column in origins if source in sources]
        for name, origins in description.lineage.items()
    }
    unknown = [name for name, _ in description.columns if name not in lineage]
    rows = [
        (name, ", ".join(f"{dep.asset_key.to_user_string()}.{dep.column_name}" for dep in deps) or "no column")
        for name, deps in lineage.items()
    ]
    return {
        "dagster/column_lineage": dg.MetadataValue.column_lineage(dg.TableColumnLineage(lineage)),
        "column lineage": _table(("column", "computed from"), rows),
        **({"columns without lineage": dg.MetadataValue.text(", ".join(unknown))} if unknown else {}),
    }


def of_shared(shared: Mapping[str, int]) -> Metadata:
    """Return the changes that a run of a project read once for several datasets, empty if there are none."""
    return {"changes read once": _table(("table", "datasets"), [*shared.items()])} if shared else {}


def of_locations(paths: Mapping[str, str]) -> Metadata:
    """Return the paths of the tables that a refresh read by name, empty if there are none."""
    return {LOCATIONS: dg.MetadataValue.json(dict(paths))} if paths else {}


def _cost_picture(history: Sequence[Report], title: str) -> str:
    """Draw refreshes, as Markdown with a PNG inside; returns a sentence if there is nothing to draw.

    Args:
        history: a view's last reports, oldest first.
        title: of the chart.
    """
    if not history:
        return "No refresh has finished yet."
    return _embed(
        f"{title}: seconds of the last {len(history)} refreshes",
        lambda: picture.cost(
            [f"epoch {report.epoch}" for report in history],
            [report.change_rows for report in history],
            {"refresh": [report.seconds for report in history]},
            title,
        ),
    )


def _rounds_picture(report: Report) -> str:
    """Draw the rows that each round of a refresh's loops moved, and their residuals, as Markdown with a PNG inside."""
    return _embed(
        f"{report.view}: rounds of epoch {report.epoch}", lambda: picture.rounds(report.rounds, report.residuals)
    )


def _embed(text: str, draw: Callable[[], bytes]) -> str:
    """Return a picture as Markdown; if its package is missing, the sentence that says so: the refresh is done."""
    try:
        with explain_missing_packages():
            image = draw()
    except ImportError as error:
        return f"{text}: no picture. {error}"
    return f"![{text}](data:image/png;base64,{base64.b64encode(image).decode()})"


def of_verification(verification: Verification, *, show_rows: bool) -> Metadata:
    """Return the differences of a view from the batch query; show_rows: with a few of the rows that differ."""
    sample = "\n".join(verification.sample) if show_rows else ""
    measured = {
        "residual": verification.residual,
        "residual allowed": verification.allowed,
        "bound": verification.bound,
    }
    return {
        "share compared": dg.MetadataValue.float(verification.share),
        "missing rows": dg.MetadataValue.int(verification.missing),
        "extra rows": dg.MetadataValue.int(verification.extra),
        "versions": dg.MetadataValue.json(dict(verification.versions)),
        **{name: dg.MetadataValue.float(value) for name, value in measured.items() if value is not None},
        **({"sample": dg.MetadataValue.md(f"```\n{sample}\n```")} if sample else {}),
    }


def of_upkeep(done: Upkeep) -> Metadata:
    """Return the rewritten and removed files, and the retention."""
    head = ("table", "done", "partitions", "files before", "files after", "old files removed", "bytes freed")
    rows = [
        (name, table.work, table.partitions, *table.files, table.removed, table.freed)
        for name, table in done.tables.items()
    ]
    return {
        "summary": dg.MetadataValue.text(done.sentence),
        "tables": _table(head, rows),
        "kept": dg.MetadataValue.md("\n".join(f"- {kept}" for kept in done.keeps)),
        "generations removed": dg.MetadataValue.int(len(done.generations)),
        "journal entries removed": dg.MetadataValue.int(done.entries),
        "retention hours": dg.MetadataValue.float(float(done.retention_hours)),
        "seconds": dg.MetadataValue.float(round(done.seconds, 3)),
    }


def _versions(versions: Mapping[str, tuple[int | None, int]]) -> dg.MetadataValue:
    rows = [
        (source, "–" if before is None else str(before), str(after)) for source, (before, after) in versions.items()
    ]
    return _table(("source", "before", "after"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str | int | float]]) -> dg.MetadataValue:
    kinds = [type(value).__name__ for value in rows[0]] if rows else ["str"] * len(head)
    columns = [dg.TableColumn(name, {"str": "string"}.get(kind, kind)) for name, kind in zip(head, kinds, strict=True)]
    records = [dg.TableRecord(dict(zip(head, row, strict=True))) for row in rows]
    return dg.MetadataValue.table(records, schema=dg.TableSchema(columns))
