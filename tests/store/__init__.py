"""What is kept of a view beside its tables."""
