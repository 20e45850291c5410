"""Tests of operations on a view: verify, maintain, roll back, branch."""
