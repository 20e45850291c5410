"""Kafka as a stream, with a broker of its own."""
