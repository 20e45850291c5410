"""Assets room: what the graph knows of a compiled plan. In: a view's Description. Out: the same, later, with no JVM.

A plan is known only once Spark has analysed the query. The first run therefore writes the Description into a file
beside the pipeline's warehouse folder, together with a digest of what it was compiled from; loading the definitions
reads it, and ignores one whose digest is another. Where none is found, the graph shows one state asset until the code
is reloaded.
"""

import json
import os
from hashlib import sha256
from pathlib import Path

from incremental.algebra.report import Description
from pipelines.catalogue import Pipeline


def digest(pipeline: Pipeline) -> str:
    """A fingerprint of all that decides a plan: the query's text, the sources and the policies. No Spark is needed."""
    declaration = pipeline.declaration
    parts = declaration.model_dump(mode="json", include={"sources", "policy", "publish"})
    text = json.dumps([parts, pipeline.query.text, pipeline.query.function], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def load(pipeline: Pipeline) -> Description | None:
    """The description as a run left it, or None where there is none or it describes another query."""
    try:
        written = json.loads(_path(pipeline).read_text())
        return Description.from_json(written["description"]) if written["digest"] == digest(pipeline) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # never written, unreadable here, or from another release: the next run writes it anew


def save(pipeline: Pipeline, description: Description) -> bool:
    """Keeps a description for the next load of the definitions.

    Returns:
        Whether it differs from the one that was there, so that the graph can show more after a reload.
    """
    if load(pipeline) == description:
        return False
    path = _path(pipeline)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh.write_text(json.dumps({"digest": digest(pipeline), "description": description.to_json()}))
    fresh.replace(path)
    return True


def _path(pipeline: Pipeline) -> Path:
    return Path(f"{pipeline.warehouse}.description.json")
