"""Delta tables: versions, reads, writes, the change between two versions, and how files lie on the disk.

The only package that imports Delta. It knows no queries, views or epochs beyond the mark that a write carries. For what
the other packages may use of a table, open protocol.py; reads and writes, delta_table.py; compaction, vacuum and
clones, physical_layout.py; the change between two versions, version_diff.py; tables and SQL views in Spark's catalog,
catalog_names.py and sql_view.py; locks and files that survive a power cut, durable.py.
"""
