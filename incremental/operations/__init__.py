"""What is done to a view beside refreshing it: verification, maintenance, rollback, branches, metrics."""
