"""Tests of the translation: golden explains, stable fingerprints and names, refusals."""
