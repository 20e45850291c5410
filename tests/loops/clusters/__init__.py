"""k-means that is kept by references: what is recognised, and random histories."""
