"""Delta tables: versions, reads, writes and physical layout. Knows nothing of views."""
