"""Tests of Java, Delta's jars, the Spark session, warm hosts and the doctor."""
