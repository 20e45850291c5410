"""The change of a plan: incremental rules for each operator, partial aggregates, merges and publication."""
