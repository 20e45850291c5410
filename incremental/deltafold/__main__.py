"""Run the command line: `python -m deltafold run NAME`, the same as `deltafold run NAME`."""

from __future__ import annotations

from deltafold.cli.commands import main

if __name__ == "__main__":
    main()
