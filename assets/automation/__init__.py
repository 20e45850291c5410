"""Start runs: schedules, and sensors that look at folders and tables without a JVM."""
