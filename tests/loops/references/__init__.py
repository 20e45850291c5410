"""Oracles of loops in plain Python: textbook algorithms, and a model of their refresh."""
