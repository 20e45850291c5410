"""Dagster: the declared pipelines as assets, jobs, schedules, sensors and checks. No logic of its own."""
