"""Fingerprint a query's expressions and Python functions, to detect that a state was built from another query."""
