"""The closed family of aggregates that incremental maintenance knows how to merge (MRQL sections 7 and 11)."""
