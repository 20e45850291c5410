"""Tests of pipeline.yaml: what it may declare, and the error for each mistake."""
