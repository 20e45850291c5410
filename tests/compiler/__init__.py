"""Tests of the compiler: each pass on hand-made plans, without Spark, and on SQL (passes/)."""
