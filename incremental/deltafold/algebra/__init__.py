"""Plans, monoids, compiled programs, source declarations, reports and errors, in pure Python.

All other packages import this one; it imports neither Spark nor Delta Lake nor Dagster.
"""
