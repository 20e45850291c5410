"""Aggregates: their changes against Spark's batch answer."""
