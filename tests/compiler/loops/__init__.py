"""The passes that compile loops."""
