"""The environment and the bridge to Spark: sessions, Java, jars, and calls into Catalyst through Py4J."""
