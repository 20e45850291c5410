"""Define `defs`, a code location with every declared pipeline: `dagster dev -m deltafold.dagster.definitions`.

The pipelines are those of DELTAFOLD_PIPELINES, else of ./pipelines. Spark runs in the process of a run; if
DELTAFOLD_SUBMIT is set, in one that this command starts for each step.
"""

from deltafold.dagster.location import load_definitions

defs = load_definitions()
