"""Check input files before Spark reads them, one module for each family of formats."""
