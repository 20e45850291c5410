"""Hooks of mkdocs: show links to files of the repository, which the site does not have, as the files' names."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")


def name_files(text: str, page: str) -> str:
    """Replace links from a page (its path in docs/) to files of the repository outside of it by their names."""

    def name_file(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link[2]))
        if target.startswith("docs/") or not (PROJECT / target).exists():
            return link[0]
        return f"`{target}`" if link[1].strip("`").endswith(posixpath.basename(target)) else f"{link[1]} (`{target}`)"

    return LINK.sub(name_file, text)


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Change the text of each page before it is rendered."""
    return name_files(markdown, page.file.src_uri)
