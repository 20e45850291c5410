"""Runs on a Spark standalone cluster whose workers are killed."""
