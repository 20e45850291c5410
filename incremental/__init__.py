"""Deltafold keeps the answer of a batch query up to date by processing only what changed.

Users import `incremental.api`. This package imports nothing, so that importing it starts neither Spark nor Dagster.

| to add or change | open |
| --- | --- |
| an aggregate | the monoids in `algebra/monoids/`, then `language/aggregates.py`, which finds them in Spark's plans |
| an operator | its node in `algebra/plan/`, `language/translate.py`, `dataflow/delta_rules.py` |
| a format of dropped files | `algebra/sources.py`, `landing/reader.py`, `landing/preflight.py` |
| how a view is published | `dataflow/publish.py` (its table), `store/publisher.py` (its address for readers) |
| the release of Delta Lake | all of `lake/`, `spark/jars.py`, `spark/doctor.py` |
| the release of Spark | `spark/catalyst.py`, `dataflow/lowering.py`, `spark/doctor.py` |
| the steps of a refresh and their order | `refresh/refresh.py`, `refresh/planner.py`, `refresh/executor.py` |
| a Dagster asset | `assets/factory.py`, outside this package |
"""
