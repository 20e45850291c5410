"""The tests, one folder for each package."""
