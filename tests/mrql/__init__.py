"""MRQL: the language against an evaluator of its own, in batch and as views."""
