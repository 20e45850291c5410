"""Declare pipelines, one folder each, and run them from the command line."""
