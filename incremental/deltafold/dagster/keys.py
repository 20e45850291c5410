"""Name the assets, ops and jobs of a pipeline.

    flights                        the view, under the name that downstream assets depend on
    flights/state/<table>          one of its state tables; flights/state while the plan is not known yet
    flights/landed/<source>        the Delta table that a source's input files are landed in
    flights/source/<source>        an external Delta table

Keys never contain a path, so that moving a pipeline keeps its history in Dagster.
"""

import dagster as dg


def view(pipeline: str) -> dg.AssetKey:
    """Return the asset of a pipeline's answer."""
    return dg.AssetKey([pipeline])


def state(pipeline: str, table: str | None = None) -> dg.AssetKey:
    """Return the asset of a state table; without a table, of the whole state while its tables are unknown."""
    return dg.AssetKey([pipeline, "state", *([table] if table else [])])


def landed(pipeline: str, source: str) -> dg.AssetKey:
    """Return the asset of the table in which a source's input files are landed."""
    return dg.AssetKey([pipeline, "landed", source])


def external(pipeline: str, source: str) -> dg.AssetKey:
    """Return the asset of an external Delta table."""
    return dg.AssetKey([pipeline, "source", source])


def landing_op(pipeline: str, source: str) -> str:
    """Return the step that lands a source; also its name in run config."""
    return f"{pipeline}__landed__{source}"


def refresh_op(pipeline: str) -> str:
    """Return the step that refreshes the state tables and the view; also its name in run config."""
    return f"{pipeline}__refresh"


def update_job(pipeline: str) -> str:
    """Return the job that lands partitions and then refreshes."""
    return f"{pipeline}_update"


def refresh_job(pipeline: str) -> str:
    """Return the job that refreshes from what has been landed."""
    return f"{pipeline}_refresh"


def maintain_op(pipeline: str) -> str:
    """Return the step that maintains the tables."""
    return f"{pipeline}__maintain"


def maintain_job(pipeline: str) -> str:
    """Return the job of the maintenance step."""
    return f"maintain_{pipeline}"


def check_op(pipeline: str, check: str) -> str:
    """Return the step of a check, as Dagster names it; also its name in run config."""
    return f"{pipeline}_{check}"


def check_job_name(pipeline: str) -> str:
    """Return the job that checks all of a view."""
    return f"check_{pipeline}"
