"""Close old event time: rows that arrive too late are refused or quarantined, and landed ones stay."""
