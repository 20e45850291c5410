"""Dagster's web server and daemon as processes, used through a browser and its API."""
