"""Find the Java that Spark runs on, with its jars, certificates and class archive."""
