"""Declared pipelines, one folder each, and the command line that runs them."""
