"""An evaluator of MRQL in plain Python, and the comparison of its answers with those of Spark."""
