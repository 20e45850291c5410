"""Warehouses that earlier releases made, which later ones must open unchanged."""
