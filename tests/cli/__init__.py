"""The command line, with a pretended view and for real."""
