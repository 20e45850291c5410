"""Define the declared pipelines as Dagster's assets, jobs, schedules, sensors and checks. No logic of its own."""
