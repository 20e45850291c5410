"""Passes that make states of group-bys."""
