"""Hooks of mkdocs: write the pages of the reference that are made of the code, and name files outside of docs/."""

from __future__ import annotations

import dataclasses
import inspect
import json
import posixpath
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File

from deltafold import __all__ as PUBLIC
from deltafold import dagster, telemetry
from deltafold.algebra import errors, tuning
from deltafold.algebra.results import report
from deltafold.cli import commands, exit_codes
from deltafold.operations.metrics import FAMILIES, METRICS_VARIABLE
from deltafold.pipelines.declaration.json_schema import stored_schema
from deltafold.store import history, journal

PROJECT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")
FIELD = re.compile(r"(?:^|[;.]\s+|\n)((?:`?\w+`?(?:, | and )?)+): ")


def on_files(files: Any, config: Any) -> None:
    """Add the pages that are made of the code."""
    for name, write in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=write()))


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return the text of a page, with what is made of the code in it, and with names in place of links out of docs/."""
    marked = re.sub(r"<!-- made by (\w+) -->", lambda mark: PARTS[mark[1]](), markdown)
    return name_files(marked, page.file.src_uri)


def name_files(text: str, page: str) -> str:
    """Replace links from a page (its path in docs/) to files of the repository outside of it by the files' names."""

    def name_file(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link[2]))
        if target.startswith("docs/") or not (PROJECT / target).exists():
            return link[0]
        return f"`{target}`" if link[1].strip("`").endswith(posixpath.basename(target)) else f"{link[1]} (`{target}`)"

    return LINK.sub(name_file, text)


def table(head: str, rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table; head: its columns, separated by a bar."""
    names = [name.strip() for name in head.split("|")]
    lines = [
        names,
        ["---"] * len(names),
        *([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def docstring(of: object) -> str:
    """Return a docstring as Markdown."""
    return inspect.cleandoc(getattr(of, "__doc__", None) or "")


def write_python() -> str:
    """Return the page of the Python API, which mkdocstrings fills."""
    lines = ["# Python API", "", "`import deltafold as df` has these names; each is imported at its first use.", ""]
    for name in ("Warehouse", "View", *(name for name in PUBLIC if name not in ("Warehouse", "View"))):
        if not name.endswith("Error"):
            lines += [f"::: deltafold.api.{name}", ""]
    return "\n".join(
        [*lines, "Errors are [a page of their own](errors.md), and so are the fields of [Tuning](tuning.md).", ""]
    )


def write_dagster() -> str:
    """Return the page of the assets for Dagster, which mkdocstrings fills."""
    head = [
        "# Dagster",
        "",
        "`import deltafold.dagster as df` has these names ([how to use them](../how-to/dagster.md)).",
        "",
    ]
    return "\n".join([*head, *(f"::: deltafold.dagster.{dagster._MODULES[name]}.{name}\n" for name in dagster.__all__)])


def write_commands() -> str:
    """Return the page of the command line."""
    group = typer.main.get_command(commands.app)
    lines = ["# Command line", "", commands.HELP.strip(), ""]
    for name, command in _commands("deltafold", group):
        arguments = [_metavar(parameter) for parameter in command.params if parameter.param_type_name == "argument"]
        lines += [f"## {name}", "", f"`{' '.join([name, *arguments])}`", ""]
        lines += [" ".join((command.help or "").split()) if name != "deltafold" else "Options of every command:", ""]
        rows = [_option(parameter) for parameter in command.params if parameter.name != "help"]
        if rows:
            lines += [table("argument or option | | default", rows), ""]
    return "\n".join(lines)


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names of a command and of those below it; of a group, the command that has its options."""
    if not command.hidden and (name == "deltafold" or not hasattr(command, "commands")):
        yield name, command
    for below, child in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {below}", child)


def _option(parameter: Any) -> tuple[str, str, str]:
    """Return the row of an argument or an option."""
    if parameter.param_type_name == "argument":
        names = f"`{_metavar(parameter)}`"
    else:
        value = "" if parameter.is_flag else f" {_metavar(parameter)}"
        names = ", ".join(f"`{option}{value}`" for option in (*parameter.opts, *parameter.secondary_opts))
    default = parameter.default
    shown = "" if default in (None, False, (), []) or callable(default) or parameter.required else f"`{default}`"
    return names, parameter.help or "", shown


def _metavar(parameter: Any) -> str:
    return parameter.metavar or parameter.name.upper()


def write_errors() -> str:
    """Return the page of errors and exit codes."""
    kinds = [
        kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.DeltafoldError)
    ]
    rows = [(f"`{kind.__name__}`", docstring(kind), str(exit_codes.code_of_name(kind.__name__))) for kind in kinds]
    return "\n".join(
        [
            "# Errors and exit codes",
            "",
            "Every error has the form `what: cause. fix.`, so no traceback is needed. In Python, catch the class; in a "
            "script, the exit code of the command. `DeltafoldWarning` is a warning of the same form.",
            "",
            table("class | when | exit code", rows[1:]),
            "",
            "All of them are a `DeltafoldError`. Its `logged` is the message without any value of a row. A "
            "`RefusedError` has `refusals`, each with `node`, `because` and `instead`.",
            "",
            "## Exit codes",
            "",
            *(f"- {code}" for code in re.split(r";\s", commands.HELP.split("\n\n")[1].removeprefix("Exit codes: "))),
            "",
            "[Airflow](../how-to/airflow.md) lists which of them are worth another try.",
            "",
        ]
    )


def write_tuning() -> str:
    """Return the page of sizes and limits."""
    lines = ["# Tuning", "", "`Warehouse(spark, root, tuning=Tuning(…))` changes sizes, limits and waits.", ""]
    for record in (tuning.Tuning, tuning.CostRates):
        described = describe_fields(docstring(record))
        rows = [
            (f"`{field.name}`", f"`{_amount(field)}`", described.get(field.name, ""))
            for field in dataclasses.fields(record)
        ]
        lines += [f"## {record.__name__}", "", docstring(record).partition("\n\n")[0], ""]
        lines += [table("field | default | ", rows), ""]
    return "\n".join(lines)


def describe_fields(text: str) -> dict[str, str]:
    """Return the texts of fields in a docstring, where `a, b: text` describes several."""
    parts = FIELD.split(text)
    found = dict[str, str]()
    for names, described in zip(parts[1::2], parts[2::2], strict=True):
        for name in re.findall(r"\w+", names):
            found[name] = f"{described[:1].upper()}{' '.join(described[1:].split()).rstrip(';.')}."
    return found


def _amount(field: Any) -> str:
    """Return the default of a field."""
    if field.default is dataclasses.MISSING:
        return f"{field.default_factory.__name__}()"
    whole = isinstance(field.default, int) and field.default >= tuning.MB
    return f"{field.default // tuning.MB} MB" if whole else str(field.default)


def write_journal() -> str:
    """Return the page of the journal's format."""
    lines = ["# Journal", "", "The journal of a view has one event for each epoch.", ""]
    lines += [docstring(journal).partition("\n\n")[2], ""]
    lines += [
        "A file is `journal/g00001-e000000003.json` for epoch 3 of generation 1. A release refuses a file with fields "
        f"that it does not know; the format is {journal.FORMAT}.",
        "",
    ]
    for kind in (history.Intent, history.Pin, history.AnswerPin, history.Chunk, history.Rest, report.Report):
        first, _, more = docstring(kind).partition("\n\n")
        described = describe_fields(more)
        rows = [
            (f"`{field.name}`", f"`{_type(field.type)}`", described.get(field.name, ""))
            for field in dataclasses.fields(kind)
        ]
        lines += [
            f"## {kind.__name__}",
            "",
            first,
            "",
            table("field | type | ", [row for row in rows if row[0] != "`_`"]),
            "",
        ]
    return "\n".join(lines)


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def list_metrics() -> str:
    """Return the table of metrics."""
    rows = [(f"`deltafold_{name}`", text) for name, text in FAMILIES.items()]
    return f"With `{METRICS_VARIABLE}=FOLDER`, each view writes these gauges.\n\n{table('metric | ', rows)}"


def list_events() -> str:
    """Return what the log's module says of its events."""
    _, _, text = docstring(telemetry).partition("\n\n")
    return textwrap.dedent(text)


def list_keys() -> str:
    """Return a table of keys for each mapping of pipeline.yaml."""
    schema = json.loads(stored_schema())
    lines = list[str]()
    for name, part in {"": schema, **schema["$defs"]}.items():
        if "properties" not in part:
            continue
        rows = [
            (
                f"`{key}`" + " (required)" * (key in part.get("required", ())),
                _kind(found),
                _default(found),
                found["description"],
            )
            for key, found in part["properties"].items()
        ]
        lines += [f"### {name or 'Of the file'}", "", *([part["description"], ""] if name else [])]
        lines += [table("key | value | default | ", rows), ""]
    return "\n".join(lines)


def _kind(found: dict[str, Any]) -> str:
    """Return the type of a key's value."""
    if "$ref" in found:
        name = found["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in found:
        return ", ".join(f"`{value}`" for value in found["enum"])
    if "anyOf" in found:
        return " or ".join(dict.fromkeys(_kind(each) for each in found["anyOf"] if each.get("type") != "null"))
    if found.get("type") == "array":
        return f"list of {_kind(found['items'])}"
    if isinstance(values := found.get("additionalProperties"), dict):
        return f"mapping to {_kind(values)}"
    return str(found.get("format", found.get("type", "")))


def _default(found: dict[str, Any]) -> str:
    default = found.get("default")
    return (
        "" if default in (None, [], {}, "") or isinstance(default, dict) else f"`{json.dumps(default).strip(chr(34))}`"
    )


PAGES = {
    "python-api": write_python,
    "dagster-api": write_dagster,
    "commands": write_commands,
    "errors": write_errors,
    "tuning": write_tuning,
    "journal": write_journal,
}
PARTS = {"list_metrics": list_metrics, "list_events": list_events, "list_keys": list_keys}
