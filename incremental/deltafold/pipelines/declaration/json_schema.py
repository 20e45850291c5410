"""Print the JSON Schema of pipeline.yaml, with which editors complete and check it.

`python -m deltafold.pipelines.declaration.json_schema` prints the text of pipeline.schema.json beside this module.
"""

from __future__ import annotations

import json
from importlib.resources import files

from deltafold.pipelines.declaration.declaration import Declaration

FILE = "pipeline.schema.json"


def stored_schema() -> str:
    """Return the JSON Schema that the package has as a file."""
    return (files(__package__ or "") / FILE).read_text(encoding="utf-8")


def compute_schema() -> str:
    """Return the JSON Schema of the declaration's classes."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Declaration.model_json_schema()}
    schema["title"] = "pipeline.yaml of Deltafold"
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(compute_schema(), end="")
