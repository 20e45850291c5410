"""Run steps: land a source, refresh a view, check it, maintain it."""
