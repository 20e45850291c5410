"""Loops: models of the algorithms, oracles that share no code with them, and both on random histories."""
