"""Branch a pipeline: create a new one that starts from the original's last epoch.

The new folder contains copies of the query and of the files beside it, and its own declaration: sources that the
original lands are read from its landed tables, as Delta tables; other paths are made absolute, since they were relative
to the original's folder; there are no schedules, and only the original has its SQL view. Both share the warehouse, in
which the new pipeline has its own folder with a branch of the original's view.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from deltafold.pipelines import catalogue
from deltafold.pipelines.declaration import parsing
from deltafold.pipelines.declaration.values import NAME_RULE, PIPELINE_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.api import View


def branch_pipeline(pipeline: catalogue.Pipeline, new: str, spark: SparkSession) -> View:
    """Create the pipeline `new` beside this one; its view starts from this one's last finished epoch.

    Raises DeclarationError for a name that is taken or invalid, StateError if there is no finished epoch.
    """
    home = home_of_branch(pipeline, new)
    _, view = catalogue.open(pipeline, spark)
    scratch = home.with_name(f".{new}.branch")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for file in sorted(path for path in pipeline.folder.iterdir() if path.is_file()):
        shutil.copy2(file, scratch / file.name)
    (scratch / catalogue.DECLARATION_FILE).write_text(declaration(pipeline), encoding="utf-8")
    scratch.rename(home)
    try:
        return view.branch(new, catalogue.open(catalogue.load(new, home.parent), spark)[0])
    except Exception:
        shutil.rmtree(home)
        raise


def home_of_branch(pipeline: catalogue.Pipeline, new: str) -> Path:
    """Return the folder for a branch; raises DeclarationError for a name that is taken or invalid."""
    if not PIPELINE_NAME.match(new):
        raise parsing.DeclarationError(f"pipeline `{new}`: invalid name. {NAME_RULE}.")
    home = pipeline.folder.with_name(new)
    if home.exists():
        raise parsing.DeclarationError(f"{home}: it exists already. Choose another name for the branch, or remove it.")
    return home


def declaration(pipeline: catalogue.Pipeline) -> str:
    """Return the pipeline.yaml of a branch."""
    fields: dict[str, Any] = pipeline.declaration.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for key in ("partitions", "schedule", "maintain", "check", "publish_as"):
        fields.pop(key, None)
    sources: dict[str, Any] = fields["sources"]
    for name in pipeline.landed:
        sources[name] = {key: part for key, part in sources[name].items() if key not in ("files", "stream")}
        sources[name]["delta"] = f"{pipeline.warehouse}/sources/{name}"
    fields["description"] = f"Branch of {pipeline.name}, whose landed tables it reads"
    fields["warehouse"] = pipeline.warehouse.rpartition("/")[0]
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
