"""Fingerprint a query's expressions and Python functions, to detect that it is another than a state's."""
