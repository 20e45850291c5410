"""k-means by references: the centers and sums of each step, and a log of the points with their margins."""
