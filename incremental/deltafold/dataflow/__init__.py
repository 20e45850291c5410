"""Compute the change of a plan: incremental rules per operator, partial aggregates, merges and publication."""
