"""Monoids: the inferred one of each aggregate, and the laws of all of them."""
