"""Tests of warm Sparks that processes share."""
