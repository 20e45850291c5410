"""Store descriptions of compiled plans in files, so that Dagster shows the columns of a view without a JVM.

A plan is known only once Spark has analysed the query. Every refresh, by the CLI, the demo or a run in Dagster, and
`deltafold explain` write the Description into a file beside the pipeline's warehouse folder, with a digest of what it
was compiled from. Loading Dagster's definitions reads it, and ignores one with another digest; where there is none, an
asset shows its columns after the first refresh.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from deltafold.algebra.results.report import Description
from deltafold.spark.local_files import replace_file

if TYPE_CHECKING:
    from deltafold.api import View
    from deltafold.pipelines.catalogue import Pipeline


def digest(pipeline: Pipeline) -> str:
    """Return a fingerprint of everything that determines a plan: query text, sources, policies. Needs no Spark."""
    declaration = pipeline.declaration
    parts = declaration.model_dump(mode="json", include={"sources", "policy", "publish"})
    if keys := pipeline.query.keys:
        parts |= declaration.model_dump(mode="json", include=set(keys))
    text = json.dumps([parts, pipeline.query.text, pipeline.query.function], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def load_description(pipeline: Pipeline) -> Description | None:
    """Return the stored description; None if there is none or it is of another query."""
    try:
        written = json.loads(_path(pipeline).read_text())
        return Description.from_json(written["description"]) if written["digest"] == digest(pipeline) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # missing, unreadable, or of another release: the next refresh writes it again


def current_description(pipeline: Pipeline, view: View) -> Description:
    """Return the description that the last refresh stored, which spares a compilation; else that of the query now."""
    return load_description(pipeline) or view.description()


def save_description(pipeline: Pipeline, description: Description, progress: Callable[[str], None]) -> None:
    """Write a description, unless the stored one is equal; a failure is reported as progress, not raised."""
    if load_description(pipeline) == description:
        return
    from deltafold.lake.durable import make_private  # a late import, since it imports Spark

    path = _path(pipeline)
    try:
        make_private(path.parent)
        replace_file(path, json.dumps({"digest": digest(pipeline), "description": description.to_json()}))
    except OSError as error:
        progress(f"description not written: {error.strerror}: {error.filename}. Dagster shows no columns at first.")


def save_descriptions(pipeline: Pipeline, view: View, progress: Callable[[str], None]) -> None:
    """Write the descriptions of a view and of those below it."""
    for of_chain, view_of_chain in chain(pipeline, view).values():
        save_description(of_chain, view_of_chain.description(), progress)


def chain(pipeline: Pipeline, view: View) -> dict[str, tuple[Pipeline, View]]:
    """Return a pipeline and all below it with their open views, by name, each before its readers."""
    views: dict[str, tuple[Pipeline, View]] = {}
    for source, below in pipeline.below.items():
        views |= chain(below, view.catalog.views[source])
    return views | {pipeline.name: (pipeline, view)}


def _path(pipeline: Pipeline) -> Path:
    return pipeline.note("description.json")
