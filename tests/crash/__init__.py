"""Tests of crashes: a refresh is stopped at every write, and the next one finishes it."""
