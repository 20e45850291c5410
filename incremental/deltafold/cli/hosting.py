"""Define the commands `deltafold host`: start, list and stop warm Sparks that later commands and runs attach to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from deltafold.cli import rendering
from deltafold.cli.exit_codes import BUSY
from deltafold.pipelines import catalogue

if TYPE_CHECKING:
    from deltafold.spark.host.control import RunningHost
    from deltafold.spark.host.wanted import WantedSpark

hosts = typer.Typer(no_args_is_help=True, help="Keep a Spark warm, for commands and runs to attach to.")
OptionalName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Of this pipeline's master, memory and settings.")
]


@hosts.command()
def start(
    name: OptionalName = None,
    idle: Annotated[float, typer.Option("--idle", min=0, help="End after MINUTES without guests; 0: never.")] = 15,
) -> None:
    """Start a Spark in the background, unless one runs already with the same settings."""
    from deltafold.spark.host.control import start_host

    found = start_host(replace(_read_wanted(name), idle_seconds=idle * 60))
    end = f"It ends after {found.host.idle_seconds / 60:g} minutes without guests." if found.host.idle_seconds else ""
    print(f"Spark host: {found.host.spark} runs as process {found.host.process}. {end}".rstrip())


@hosts.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False) -> None:
    """List the warm Sparks that run, and how many processes use each."""
    from deltafold.spark.host.control import list_running

    found = [each.facts for each in list_running()]
    if as_json:
        print(json.dumps(found, indent=2))
    elif found:
        rows = [[each["spark"], each["process"], f"{each['guests']} of {each['most_guests']}"] for each in found]
        print(rendering.table(["spark", "process", "guests"], rows))
    else:
        print("No Spark host runs. Start one: deltafold host start")


@hosts.command()
def stop(
    name: OptionalName = None,
    now: Annotated[bool, typer.Option("--now", help="Also while processes use it: they fail.")] = False,
) -> None:
    """Stop the warm Spark of a pipeline's settings, or all of them."""
    from deltafold.spark.host.control import list_running, stop_host

    file = _read_wanted(name).file if name else None
    found = [each for each in list_running() if file in (None, each.file)]
    busy = [each for each in found if each.guests and not now]
    for each in found:
        if each not in busy:
            stop_host(each)
            print(f"Spark host: {each.host.spark}, process {each.host.process}, has ended.")
    if not found:
        print("No Spark host runs.")
    for each in busy:
        typer.echo(_explain_busy(each), err=True)
    if busy:
        raise typer.Exit(BUSY)


def _read_wanted(name: str | None) -> WantedSpark:
    """Return the Spark that a pipeline declares, or the default one."""
    from deltafold.spark.host.wanted import WantedSpark

    part = catalogue.load(name).declaration.spark if name else None
    asked = part.model_dump(include={"master", "memory"}, exclude_none=True) if part else {}
    return WantedSpark(settings=part.settings if part else {}, **asked)


def _explain_busy(running: RunningHost) -> str:
    return (
        f"Spark host: {running.host.spark}, process {running.host.process}, has {running.guests} guests. "
        "Wait for their end, or stop it with --now."
    )
