"""Property tests: random queries over random histories, compared with Spark after every refresh."""
