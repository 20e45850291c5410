"""Define `defs`, which Dagster loads, from the folder of pipelines (DELTAFOLD_PIPELINES, else ./pipelines).

Loading reads text only: no JVM is started, no query analysed. A run loads this module again in its own process, and
must see the graph that it was launched from even if a description was written in between. So the descriptions that were
read when the code location was loaded are passed to the run as reconstruction metadata.
"""

import json
import warnings

import dagster as dg
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

from assets import factory
from assets.resources import SparkResource
from incremental.algebra.results.report import Description
from pipelines import catalogue, descriptions

DESCRIPTIONS = "deltafold/descriptions"


def _build() -> dg.Definitions:
    found = catalogue.survey_pipelines()
    context = DefinitionsLoadContext.get()
    if context.load_type == DefinitionsLoadType.RECONSTRUCTION and DESCRIPTIONS in context.reconstruction_metadata:
        text = context.reconstruction_metadata[DESCRIPTIONS]
    else:
        loaded = {
            name: descriptions.load_description(one)
            for name, one in found.items()
            if isinstance(one, catalogue.Pipeline)
        }
        text = json.dumps({name: description.to_json() for name, description in loaded.items() if description})
    described = {name: Description.from_json(one) for name, one in json.loads(text).items()}
    return factory.build(found, described, SparkResource()).with_reconstruction_metadata({DESCRIPTIONS: text})


with warnings.catch_warnings():
    # Backfill policies and reconstruction metadata may change in a later Dagster: its version is pinned.
    warnings.simplefilter("ignore", dg.BetaWarning)
    warnings.simplefilter("ignore", dg.PreviewWarning)
    defs = _build()
