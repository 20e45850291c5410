"""Side-by-side measurements, each one command: `python -m benchmarks`. Ratios within one run; never a timed test."""
