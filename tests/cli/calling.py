"""Call the command line in this process."""

from __future__ import annotations

import json

from typer.testing import CliRunner, Result

from deltafold.cli import commands as cli


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, arguments)


def answer() -> dict[tuple[str, str], tuple[int, str]]:
    rows = json.loads(call("show", "shop", "--json").stdout)
    return {(row["city"], row["product"]): (row["sales"], row["revenue"]) for row in rows}
