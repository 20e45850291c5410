"""Translate Spark SQL and DataFrame functions into plans of the algebra, through Spark's own analyser."""
