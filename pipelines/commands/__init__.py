"""Share what commands need (opening, progress, rendering, exit codes, Dagster), and do new, branch and backfill."""
