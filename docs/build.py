"""Hooks of mkdocs: write the pages of the reference that are made of the code, and link words to the glossary.

Files outside of docs/ are named instead of linked.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import posixpath
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
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
GLOSSARY = "explanation/glossary.md"
TERM = re.compile(r"^\| (?P<words>\w[^|]+) \| (?P<meaning>[^|]+) \|$", re.MULTILINE)
ORDINARY = {"word", "change", "pin", "rule", "mode", "strategy", "maintenance", "upkeep", "batch query", "batch answer"}
"""The words of the glossary that a reader understands without it, and its head."""
UNLINKED = re.compile(
    r"^```.*?^```$|^ {4}.*?$|^#.*?$|^:::.*?$|"
    r"<!-- output -->.*?<!-- end -->|<[^>]+>|`[^`]*`|!?\[[^\]]*\]\([^)]*\)|\*+\w[^*]*\*+",
    re.MULTILINE | re.DOTALL,
)
"""Where no word is linked: code, headings, HTML, links, and what is marked since it is explained there."""
FIELD = re.compile(r"(?:^|[;.]\s+|\n)(`?\w+`?(?:(?:,\s+|\s+and\s+)`?\w+`?)*):\s")


def on_files(files: Any, config: Any) -> None:
    """Add the pages that are made of the code."""
    for name, write in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=write()))


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return the text of a page, with what is made of the code in it, and with names in place of links out of docs/."""
    marked = re.sub(r"<!-- made by (\w+) -->", lambda mark: PARTS[mark[1]](), markdown)
    return link_terms(name_files(marked, page.file.src_uri), page.file.src_uri, read_terms())


def on_page_content(html: str, page: Any, **_: object) -> str:
    """Return a page's HTML; where docstrings describe fields in a paragraph, these are a list."""
    made = page.file.src_uri in {f"reference/{name}.md" for name in PAGES}
    return re.sub(r"<p>(.*?)</p>", _list_described, html, flags=re.DOTALL) if made else html


def _list_described(paragraph: re.Match[str]) -> str:
    """Return the list of a paragraph that describes three fields or more, as `name: text; name: text`."""
    before, *parts = FIELD.split(paragraph[1])
    if len(parts) < 6:
        return paragraph[0]
    items = [
        f"<li><code>{name}</code>: {text.rstrip(';.')}.</li>"
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    return (f"<p>{before.rstrip(';')}</p>" if before.strip() else "") + f"<ul>{''.join(items)}</ul>"


def read_terms() -> dict[str, str]:
    """Return the meaning of each word of the glossary that a reader may not know."""
    text = (PROJECT / "docs" / GLOSSARY).read_text(encoding="utf-8")
    words = {word.strip(): term["meaning"] for term in TERM.finditer(text) for word in term["words"].split(",")}
    return {word: meaning.replace("`", "").replace('"', "") for word, meaning in words.items() if word not in ORDINARY}


def link_terms(text: str, page: str, terms: Mapping[str, str]) -> str:
    """Link the first use of each word on a page (its path in docs/), unless the page marks it as explained there."""
    if page == GLOSSARY:
        return text
    target = posixpath.relpath(GLOSSARY, posixpath.dirname(page))
    for word, meaning in terms.items():
        use = re.compile(rf"\b{word}s?\b", re.IGNORECASE)
        if not re.search(rf"\*{word}s?\*", text, re.IGNORECASE):
            text = _link_first(text, use, f'{target} "{word}: {meaning}"')
    return text


def _link_first(text: str, use: re.Pattern[str], target: str) -> str:
    """Link the first use of a word outside of code, headings and links."""
    begin = 0
    for unlinked in (*UNLINKED.finditer(text), None):
        if found := use.search(text, begin, len(text) if unlinked is None else unlinked.start()):
            return f"{text[: found.start()]}[{found[0]}]({target}){text[found.end() :]}"
        begin = len(text) if unlinked is None else unlinked.end()
    return text


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
            lines += [table("argument or option | meaning | default", rows), ""]
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
        lines += [f"## {record.__name__}", "", docstring(record).partition("\n\n")[0], ""]
        lines += [table("field | default | meaning", list_fields(record, _amount)), ""]
    return "\n".join(lines)


def describe_fields(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the fields that a docstring describes, with the text; `a, b: text` describes several together."""
    parts = FIELD.split(text)
    for names, described in zip(parts[1::2], parts[2::2], strict=True):
        words = " ".join(described.split()).rstrip(";.")
        yield tuple(re.findall(r"\w+", names)), f"{words[:1].upper()}{words[1:]}."


def list_fields(record: Any, show: Callable[[Any], str]) -> list[tuple[str, ...]]:
    """Return a row for each field of a record, or for several that are described together; show: its second cell."""
    fields = {field.name: field for field in dataclasses.fields(record) if field.name != "_"}
    owners = [record, *(owner for owner in record.__mro__[1:] if dataclasses.is_dataclass(owner))]
    described = [each for owner in owners for each in describe_fields(docstring(owner).partition("\n\n")[2])]
    rows = list[tuple[str, ...]]()
    for name in list(fields):
        names, text = next((each for each in described if name in each[0]), ((name,), ""))
        together = [fields.pop(each) for each in names if each in fields]
        if together:
            cells = (", ".join(f"`{field.name}`" for field in together), ", ".join(f"`{show(f)}`" for f in together))
            rows.append((*cells, text))
    return rows


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
        first = docstring(kind).partition("\n\n")[0]
        fields = table("field | type | meaning", list_fields(kind, lambda field: _type(field.type)))
        lines += [f"## {kind.__name__}", "", first, "", fields, ""]
    return "\n".join(lines)


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def list_metrics() -> str:
    """Return the table of metrics."""
    rows = [(f"`deltafold_{name}`", text) for name, text in FAMILIES.items()]
    return f"With `{METRICS_VARIABLE}=FOLDER`, each view writes these gauges.\n\n{table('metric | meaning', rows)}"


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
        lines += [table("key | value | default | meaning", rows), ""]
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
