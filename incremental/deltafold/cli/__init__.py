"""Share what commands need (opening, progress, rendering, exit codes, Dagster); do new, branch, backfill and host."""
