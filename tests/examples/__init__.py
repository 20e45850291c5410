"""Worked examples: one awkward case of maintenance in each test."""
