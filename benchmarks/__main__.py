"""`python -m benchmarks [group-by] [--rows N ...]`: measure, print a table, write JSON beside the cache."""

from __future__ import annotations

import argparse

from benchmarks import group_by

SIZES = [1_000_000, 10_000_000, 100_000_000]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("experiment", nargs="?", choices=["group-by"], default="group-by")
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES, help="sizes of the source, smallest first")
    group_by.run(parser.parse_args().rows)


if __name__ == "__main__":
    main()
