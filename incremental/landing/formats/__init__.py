"""What is particular to single formats of dropped files."""
