"""Deltafold: keeps the answer of a batch query up to date by processing only what changed. Imports nothing."""
