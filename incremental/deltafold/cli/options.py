"""Define the options and arguments that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from deltafold.cli.exit_codes import value
from deltafold.pipelines.declaration import sizes

PartitionOption = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="VALUE", help="Land only this partition, compared by content (repeatable)."),
]


ChunkOption = Annotated[
    str | None,
    typer.Option(
        "--chunk", metavar="SIZE", callback=value(sizes.check_size), help="Split changes into chunks of SIZE (2g)."
    ),
]


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.", show_default=False)]


SampleOption = Annotated[
    str,
    typer.Option(
        "--sample", metavar="SHARE", callback=value(sizes.check_share), help="Verify this share of the keys (1%)."
    ),
]


JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
