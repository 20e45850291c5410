"""Define the closed family of aggregates that can be merged incrementally (MRQL sections 7 and 11)."""
