"""Tell whether a query is the one that a state was built from: the details of its expressions and functions."""
