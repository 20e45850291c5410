"""Define `defs`, which Dagster loads, from the folder of pipelines (DELTAFOLD_PIPELINES, else ./pipelines).

Spark runs in the process of a run; if DELTAFOLD_SUBMIT is set, in one that this command starts for each step.
"""

import os
import warnings

import dagster as dg

from deltafold.dagster import factory
from deltafold.dagster.external import SUBMIT_VARIABLE, SubmittedSpark
from deltafold.dagster.resources import SparkResource

with warnings.catch_warnings():
    # Backfill policies and reconstruction metadata may change in a later Dagster: its version is pinned.
    warnings.simplefilter("ignore", dg.BetaWarning)
    warnings.simplefilter("ignore", dg.PreviewWarning)
    command = os.environ.get(SUBMIT_VARIABLE, "").strip()
    defs = factory.load_definitions(SubmittedSpark(command=command) if command else SparkResource())
