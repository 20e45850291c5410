"""Plan to plan to program, in pure Python: passes, lineage keys, monoid inference, factoring, strategy, explain."""
