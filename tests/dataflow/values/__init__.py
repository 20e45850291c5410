"""Kinds of values and of column names through a refresh."""
