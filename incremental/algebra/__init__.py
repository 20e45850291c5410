"""What things are, in pure Python: plan nodes, monoids, the Z-set reference model, programs, errors."""
