"""What is particular to single formats of input files."""
