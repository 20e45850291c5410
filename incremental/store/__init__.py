"""What is kept of a view beside its tables: its journal, where its tables are, who reads it, where readers find it."""
