"""What is done to a finished view: verify, maintain, roll back, branch."""
