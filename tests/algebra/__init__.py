"""Tests of the algebra: plans, declarations, the monoid family, and its laws with Spark evaluating the SQL."""
