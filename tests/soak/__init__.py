"""Hours of random work on a small warehouse, with kills: `python -m tests.soak --minutes N --seed S`."""
