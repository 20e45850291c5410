"""Plans, monoids, compiled programs, source declarations, reports and errors, in pure Python.

Every other room builds on this one; it imports neither Spark nor Delta Lake nor Dagster.
"""
