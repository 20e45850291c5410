"""Land input files in Delta tables: folders, readers, manifests and quarantine."""
