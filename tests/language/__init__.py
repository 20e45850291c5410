"""Tests of the language room: golden explains, stable names, refusals."""
