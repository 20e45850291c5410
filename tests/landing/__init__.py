"""Tests of landing: input files become a table exactly, or the landing fails and changes nothing."""
