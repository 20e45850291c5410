"""Tests of log events."""
