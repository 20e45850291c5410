"""Read and write Delta tables: versions, rows, the change between two versions, and the layout of files.

The only package that calls Delta; spark/ starts sessions with it. It knows no queries, views or epochs beyond the mark
that a write carries.

| subject | module |
| --- | --- |
| the interface that other packages use | protocol.py |
| a Delta table: reads, writes, compaction, vacuum, clones | delta_table.py |
| the change between two versions | version_diff.py |
| commits and file lists of Delta's log, direct commits | log/ |
| tables and SQL views in Spark's catalog | catalog_names.py, sql_view.py |
| a change of some rows: which path writes it | upsert.py |
| records and locks, on this machine or at a URI | records.py, durable.py, remote/ |
"""
