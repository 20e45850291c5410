"""Restrict what a refresh reads to the rows that a change can affect."""
