"""Compile a query plan into a maintainable program: a tuple of passes (compile.py), its cost, and its explanation."""
