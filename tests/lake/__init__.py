"""Tests of the lake: both implementations, and what only Delta has."""
