"""Tests of catalogs: sources and SQL views by their names, in memory and in a metastore."""
