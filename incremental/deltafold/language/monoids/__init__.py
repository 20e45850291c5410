"""Register the monoids that users declare as SQL functions, and find their calls in analysed queries."""
