"""A lake in memory, for tests: versions, files, marks and MERGE as Delta has them, ten times faster.

| like Delta | not like Delta |
| --- | --- |
| versions that can be read until a vacuum; ids of tables and commits | rows are in the driver's memory |
| commits add and remove files; deletions give a file another deletion vector | a write makes one file per partition |
| an epoch's second write to a table is skipped | a row counts as ROW_BYTES bytes |
| a schema is enforced; columns change by `reshape` alone | columns have the same names in files |
| MERGE raises where several rows of its source change the same row | at most one partition column |
| a table is copied, moved and removed with its folder | the folder only names the last commit |

tests/lake/test_contract.py compares the two.
"""
