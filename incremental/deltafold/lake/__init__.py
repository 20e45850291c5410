"""Read and write Delta tables: versions, rows, the change between two versions, and the layout of files.

The only package that calls Delta; spark/ starts sessions with it. It knows no queries, views or epochs beyond the mark
that a write carries. For the interface that other packages use, open protocol.py; reads and writes, delta_table.py;
compaction, vacuum and clones, physical_layout.py; the change between two versions, version_diff.py; commits and file
lists of Delta's log, log/; tables and SQL views in Spark's catalog, catalog_names.py and
sql_view.py, and why one cannot be reached, catalog_faults.py; locks and files that survive a power cut, durable.py.
"""
