"""The change of a plan, its partial aggregates and merges: one awkward case in each test."""
