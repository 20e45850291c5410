"""Tests of the compiler room, without Spark: each pass on hand-made plans."""
