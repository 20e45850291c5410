"""Read pipeline.yaml into a Declaration, or raise an error with one sentence per mistake.

Each sentence cites file, line, field, cause and fix. The YAML is first parsed into nodes, because only these have line
numbers, and because PyYAML itself would silently keep the second of two equal keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel, ValidationError

from deltafold.algebra.errors import DeltafoldError, suggest_nearest
from deltafold.pipelines.declaration.declaration import (
    Check,
    DatasetPart,
    DatasetsPart,
    Declaration,
    LoopPart,
    MonoidPart,
    Partitions,
    SparkPart,
)
from deltafold.pipelines.declaration.sources import ExpirePart, FilesSource, ForeignKeyPart, Source

_KeyPath = tuple[str | int, ...]

# Keys that users may expect here but that belong elsewhere.
_ELSEWHERE = {
    "name": "a pipeline is named by its folder. Remove it",
    "query": "the query belongs in a file beside this one, such as query.sql. Move it there",
    "sql": "the query belongs in query.sql beside this file. Move it there",
}
_WHAT = {
    "missing": "it is missing. Add it",
    "string_type": "it must be text. Put it in quotation marks",
    "bool_type": "it must be true or false",
    "dict_type": "it must be a mapping. Write `key: value` lines under it",
    "model_type": "it must be a mapping. Write `key: value` lines under it",
    "tuple_type": "it must be a list. Write `- ` lines under it",
    "too_short": "it is empty. Declare at least one",
}


class DeclarationError(DeltafoldError):
    """The declaration of a pipeline is invalid; the message has one line per mistake."""


def read_declaration(path: Path, environment: Mapping[str, str]) -> Declaration:
    """Read the declaration in a pipeline.yaml. Raises DeclarationError.

    path: the file, to whose folder paths are relative; environment: the variables that paths may use.
    """
    content, lines = _parse(path)
    return check_declaration(path, content, path.parent.absolute(), environment, lines)


def check_declaration(
    where: str | Path,
    content: Mapping[str, Any],
    folder: Path,
    environment: Mapping[str, str],
    lines: Mapping[_KeyPath, int] | None = None,
) -> Declaration:
    """Return the declaration of this content. Raises DeclarationError.

    where: its place, which errors cite; folder: the one that paths are relative to; lines: those of its keys.
    """
    try:
        return Declaration.model_validate(content, context={"folder": folder, "environment": environment})
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_input=True)
        raise DeclarationError("\n".join(_sentence(where, lines or {}, mistake) for mistake in mistakes)) from None


def declares(path: Path, key: str) -> Any:
    """Return what a pipeline.yaml has under a key; None if it has none or cannot be read."""
    try:
        return _parse(path)[0].get(key)
    except DeclarationError:
        return None


def _parse(path: Path) -> tuple[dict[str, Any], dict[_KeyPath, int]]:
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8-sig"))
        node = loader.get_single_node()
        lines: dict[_KeyPath, int] = {}
        if node is not None:
            _collect(path, node, (), lines, ())
        content = cast(Any, loader.construct_document(node) if node else None)  # pyright: ignore[reportUnknownMemberType]
    except UnicodeDecodeError:
        raise DeclarationError(f"{path}: it is not UTF-8 text. Save it as UTF-8.") from None
    except OSError as error:
        raise DeclarationError(f"{path}: it cannot be read ({error.strerror}). Let this user read it.") from None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise DeclarationError(f"{path}{line}: it is not YAML ({error.problem}). Correct it.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise DeclarationError(f"{path}: it is not YAML ({' '.join(str(error).split())}). Correct it.") from None
    if not isinstance(content, dict):
        raise DeclarationError(f"{path}: it must be a mapping that declares at least `sources:`. Add them.")
    return cast(dict[str, Any], content), lines


def _collect(path: Path, node: yaml.Node, where: _KeyPath, lines: dict[_KeyPath, int], above: tuple[int, ...]) -> None:
    """Collect the line of every key and item below a node; refuses cycles and duplicate keys."""
    if id(node) in above:
        raise DeclarationError(f"{path}, line {node.start_mark.line + 1}: a value contains itself. Remove the anchor.")
    above = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            inner = (*where, str(key.value))
            if inner in lines:
                raise DeclarationError(f"{path}, line {line}: `{key.value}` is declared twice. Remove one of the two.")
            lines[inner] = line
            _collect(path, value, inner, lines, above)
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            lines[(*where, position)] = value.start_mark.line + 1
            _collect(path, value, (*where, position), lines, above)


def _sentence(path: str | Path, lines: Mapping[_KeyPath, int], mistake: Any) -> str:
    where: _KeyPath = tuple(part for part in mistake["loc"] if part != "[key]")
    number = next((lines[where[:end]] for end in range(len(where), 0, -1) if where[:end] in lines), None)
    line = f", line {number}" if number else ""
    field = ".".join(str(part) for part in where)
    ending = _what(where, mistake)
    return f"{path}{line}: {f'{field}: ' if field else ''}{ending}{'' if ending[-1] in '?.' else '.'}"


def _what(where: _KeyPath, mistake: Any) -> str:
    kind = mistake["type"]
    context = mistake.get("ctx", {})
    if kind == "extra_forbidden":
        key = str(where[-1])
        if len(where) == 1 and key in _ELSEWHERE:
            return _ELSEWHERE[key]
        return f"unknown key. {suggest_nearest(key, _keys(where[:-1]))}"
    if kind == "literal_error":
        return f"`{mistake['input']}` is not one of {context['expected']}. Choose one of them"
    if kind == "value_error":
        return str(context["error"])
    if kind == "missing" and where == ("sources",):
        return "it is missing. Add it, for a query of constants as `sources: {}`"
    if kind == "string_type" and mistake["input"] is None:
        return "it has no value. Write one, or remove the key"
    return _WHAT.get(kind, f"{mistake['msg']}. Correct it")


def _keys(where: _KeyPath) -> list[str]:
    """Return the allowed keys of the mapping at this path."""
    part: type[BaseModel]
    match where:
        case ("sources", _):
            part = Source
        case ("sources", _, "files"):
            part = FilesSource
        case ("sources", _, "files", "expire"):
            part = ExpirePart
        case ("sources", _, "foreign_keys", _):
            part = ForeignKeyPart
        case ("loops", _):
            part = LoopPart
        case ("monoids", _):
            part = MonoidPart
        case ("partitions",):
            part = Partitions
        case ("spark",):
            part = SparkPart
        case ("check",):
            part = Check
        case ("datasets",):
            part = DatasetsPart
        case ("datasets", "options", _):
            part = DatasetPart
        case _:
            part = Declaration
    return [field.alias or name for name, field in part.model_fields.items()]
