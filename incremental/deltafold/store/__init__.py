"""Store a view's metadata beside its tables: its journal, table locations, readers, and the address of its answer."""
