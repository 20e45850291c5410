"""Tests of Java, Delta's jars, the Spark session, the shared session and the doctor."""
