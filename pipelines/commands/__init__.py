"""Implement the commands of the command line and render their results."""
