"""Verify, maintain, roll back, branch and drop views, and write their metrics."""
