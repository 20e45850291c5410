"""This repository's own code location, written as in any project that uses Deltafold: `make ui` shows it.

In a project of your own, put the same lines into the file that Dagster loads, next to your own assets.
"""

from deltafold.dagster import load_definitions

# Every folder with a pipeline.yaml below ./pipelines (or below $DELTAFOLD_PIPELINES) becomes a group of assets: the
# landed tables, the states, the view with a check that it equals the batch query, jobs, sensors and, if the
# declaration has one, a schedule. Nothing is started here: loading reads texts only.
#
# Spark runs in the process of each run. To run it elsewhere, pass a resource, such as
#     load_definitions(SubmittedSpark(command="spark-submit --master yarn job.py"))
# docs/platforms.md has more. Your own assets join by dg.Definitions.merge(load_definitions(), your_definitions); one
# that depends on a view names its key, such as deps=["flights"].
defs = load_definitions()
