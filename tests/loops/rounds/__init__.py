"""The rounds of loops: rows that a step gives by itself, limits, and random programs."""
