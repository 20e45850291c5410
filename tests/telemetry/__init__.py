"""What machines are told of work."""
