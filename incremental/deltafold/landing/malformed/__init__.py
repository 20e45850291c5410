"""Malformed rows of input files: their file and line, the reason, and the table that keeps them."""
