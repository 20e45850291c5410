"""Start runs by schedules, and by sensors that read folders and tables without a JVM."""
