"""A program of MRQL: its items, its sources, and the Spark SQL that it becomes."""
