"""Tests of declared pipelines: their mistakes, the catalogue, the command line, the demo's data, the docs."""
