"""Make queries deterministic where Spark is not: ties in orders, and aggregates that depend on row order."""
