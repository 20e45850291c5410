"""Tests of sources that were replaced, lost, or got another schema."""
