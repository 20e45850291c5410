"""Run the stages of an epoch that are loops: recursion in rounds, iteration in steps."""
