"""Tests of the algebra room: plans, the monoid family, and its laws with Spark evaluating the SQL."""
