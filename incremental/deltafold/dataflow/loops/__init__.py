"""Maintain a loop: candidate rows with levels and derivation counts, in rounds until nothing more changes."""
