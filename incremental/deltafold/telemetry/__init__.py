"""Log structured events (events.py), and read the clock that reports use (clock.py).

The package imports neither Spark nor views: a caller names the work, its fields and its result. The metrics for
Prometheus read a view's journal and tables, and so are in operations/metrics.py.
"""
