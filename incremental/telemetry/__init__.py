"""Structured log events and the clock."""
