"""Deltafold keeps the answer of a batch query up to date by processing only what changed.

Users import `deltafold.api`. This package imports nothing, so that importing it starts neither Spark nor Dagster.

docs/design.md lists the packages, and the file to open for each kind of change.
"""
