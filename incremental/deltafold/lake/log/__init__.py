"""Delta's log: commits and the files of versions, read in batches."""
