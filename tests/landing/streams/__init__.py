"""Tests of streams: how they are declared, landed, and where their position is kept."""
