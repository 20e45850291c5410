"""The refresh protocol: epochs, the journal, and the ways in which a view is kept current."""
