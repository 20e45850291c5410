"""Dropped files to landed Delta tables: folders, readers, manifests and quarantine."""
