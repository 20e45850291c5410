"""Tests of the Dagster side: folders, sensors and schedules alone; jobs in process; `dagster dev` for real."""
