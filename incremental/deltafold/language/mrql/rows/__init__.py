"""What expressions are while they are translated: types, values, the rows that they are about, and their names."""
