"""Run or check a project: of Spark Declarative Pipelines, in a folder, or of dbt, by its manifest."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deltafold.algebra.results.upkeep import format_count
from deltafold.cli.exit_codes import DATA, code_of
from deltafold.cli.rendering import Say, show_progress
from deltafold.pipelines.declaration.parsing import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.pipelines.project_run import OpenProject, Outcome

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")


def locate_spec(spec: Path | None, folder: Path) -> Path:
    """Return the specification: the named one, else that of a folder or of the nearest one around it.

    Raises DeclarationError if there is none.
    """
    if spec is not None:
        return spec
    for around in (folder, *folder.parents):
        for name in SPEC_NAMES:
            if (around / name).is_file():
                return around / name
    raise DeclarationError(
        f"{folder}: there is no {SPEC_NAMES[0]} in it or around it. Name a pipeline (deltafold run NAME), a "
        "specification (--spec FILE), or the manifest of a dbt project (--dbt target/manifest.json)."
    )


@contextmanager
def open_dbt_project(manifest: Path, tables: str | None) -> Generator[tuple[OpenProject, Say]]:
    """Load the project of a manifest, and start Spark; tables: the folder of tables that are in no catalog."""
    from deltafold.pipelines.dbt import load_project

    project = load_project(manifest, tables)
    from deltafold.pipelines.project_run import OpenProject

    with _start_spark(project.name, {}) as (spark, say):
        yield OpenProject(project, spark), say


@contextmanager
def open_project(path: Path) -> Generator[tuple[OpenProject, Say]]:
    """Start Spark with the settings of a specification, and load its project."""
    from deltafold.pipelines.declarative import load_project, read_spec
    from deltafold.pipelines.project_run import OpenProject

    spec = read_spec(path)
    with _start_spark(spec.name, spec.configuration) as (spark, say):
        say(f"{spec.name}: loading the project")
        yield OpenProject(load_project(path, spark, spec), spark), say


@contextmanager
def _start_spark(name: str, settings: Mapping[str, str]) -> Generator[tuple[SparkSession, Say]]:
    """Start Spark for a project of this name."""
    from deltafold.spark.lost import explain_lost_spark
    from deltafold.spark.session import start

    with show_progress(f"{name}: starting Spark") as say, explain_lost_spark():
        yield start(f"deltafold {name}", settings=settings), say


def names_in(lists: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in comma-separated lists."""
    return tuple(name.strip() for names in lists or () for name in names.split(",") if name.strip())


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return 0 if every dataset was refreshed, else the code of the first error."""
    if all(outcome.state == "refreshed" for outcome in outcomes):
        return 0
    return next((code_of(outcome.error) for outcome in outcomes if outcome.error is not None), DATA)


def render_outcomes(outcomes: Sequence[Outcome]) -> str:
    """Render a line for each dataset, and a summary with the slowest."""
    lines = [_line(outcome) for outcome in outcomes]
    counts = (
        f"{sum(outcome.state == state for outcome in outcomes)} {state}"
        for state in ("refreshed", "failed", "skipped")
        if any(outcome.state == state for outcome in outcomes)
    )
    summary = f"{format_count(len(outcomes), 'dataset')}: {', '.join(counts)}"
    if outcomes:
        slowest = max(outcomes, key=lambda outcome: outcome.seconds)
        total = sum(outcome.seconds for outcome in outcomes)
        summary += f"; {total:.1f} s, the slowest {slowest.dataset} {slowest.seconds:.1f} s"
    return "\n".join([*lines, summary])


def _line(outcome: Outcome) -> str:
    """Render one dataset; sentences of views begin with their name."""
    named = outcome.sentence.lower().startswith((f"{outcome.dataset.lower()}:", f"view {outcome.dataset.lower()}:"))
    failed = "FAILED " if outcome.state == "failed" else ""
    return f"{failed}{outcome.sentence if named else f'{outcome.dataset}: {outcome.sentence}'}"


def render_graph(opened: OpenProject, unknown: Sequence[str]) -> str:
    """Render a line for each dataset with what it reads, in the order of a run; unknown: those only analysed."""
    lines = list[str]()
    for node in opened.reads.order:
        key = opened.graph.key(node)
        read = sorted(
            relation.node.name if relation.node is not None else ".".join(relation.parts)
            for relation in opened.reads.reads[key].values()
        )
        mode = f", {opened.views[key].mode}" if key in opened.views else ""
        lines.append(f"{node.name}: reads {', '.join(read) or 'nothing'}{mode}")
    if unknown:
        lines.append(f"not compiled before a run has created the streaming tables: {', '.join(unknown)}")
    return "\n".join(lines)
