"""Tests of what a fresh machine needs: Java, jars, the session, the doctor, the rules of the code."""
