"""Sensors and automation conditions."""
