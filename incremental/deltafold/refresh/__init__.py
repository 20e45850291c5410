"""Run the refresh protocol: plan an epoch, execute it, and maintain a view incrementally or by recompute."""
