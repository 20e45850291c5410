"""Give one answer to queries that Spark leaves open: ties in orders, and aggregates that depend on row order."""
