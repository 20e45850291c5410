"""Streams to landed Delta tables: positions, arrivals, records."""
