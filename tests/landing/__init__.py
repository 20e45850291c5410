"""Dropped files become a table exactly, or nothing of them does."""
