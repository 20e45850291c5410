"""The forms of MRQL whose value is computed from values of one row: operators, functions, casts, indexing, XML."""
