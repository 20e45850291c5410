"""Accept the path of a local folder, and refuse any other URI.

Python reads `s3a://bucket/folder` as the relative local path `s3a:/bucket/folder`, and would create that folder.
`file:///folder` is a local path, spelt as Spark spells it: all that follows the empty host is the path, verbatim.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import cast

from deltafold.algebra.errors import DeltafoldError, SourceError
from deltafold.algebra.secrets import mask_secrets

URI = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]+):/", re.ASCII)  # a single letter is a Windows drive
FILE_URI = re.compile(r"\s*file:(?://localhost/+|/+)", re.IGNORECASE)
OLD_SCHEMES = ("s3", "s3n")
BUCKETED = ("s3a", "gs")  # schemes whose addresses begin with a bucket
ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


def is_uri(address: str) -> bool:
    """Return whether an address begins with a scheme (`s3a:/`, `file:/`), which no path of this machine does."""
    return URI.match(address) is not None


def is_remote(address: str) -> bool:
    """Return whether an address is a URI of anything but a folder of this machine."""
    return is_uri(address) and FILE_URI.match(address) is None


def remote_fault(address: str) -> str:
    """Return why an address of a store cannot be one, and the fix; empty if it may be one."""
    uri = URI.match(address)
    scheme = uri[1] if uri else ""
    if scheme.lower() in OLD_SCHEMES:
        return f"{scheme}: is not a file system of Hadoop 3. Write s3a: instead"
    if scheme != scheme.lower():
        return f"Hadoop knows no {scheme}:. Write {scheme.lower()}: instead"
    if scheme in BUCKETED and not re.match(rf"\s*{scheme}://[^/\s]", address):
        return f"it names no bucket. Write {scheme}://bucket/folder"
    return ""


def local_path(
    what: str, address: str | os.PathLike[str], kind: type[DeltafoldError] = SourceError, *, home: bool = False
) -> Path:
    """Return the absolute local path of an address; raises `kind` for any other URI.

    what: its name in the message, such as `warehouse`; home: `~` is the home folder.
    """
    if not isinstance(cast("object", address), str | os.PathLike):
        raise kind(f"{what}: {address!r} is not a path. Name a local folder.")
    text = os.fspath(address)
    if fault := uri_fault(text):
        raise kind(f"{what} {mask_secrets(text)}: {fault}.")
    path = Path(plain(text))
    return (path.expanduser() if home else path).absolute()


def locate_folder(what: str, address: str | os.PathLike[str]) -> str:
    """Return a folder's absolute local path, or its URI in a store without a slash at the end; raises SourceError."""
    if not isinstance(address, str) or not is_remote(address):
        return str(local_path(what, address))
    if fault := remote_fault(address):
        raise SourceError(f"{what} {mask_secrets(address)}: {fault}.")
    return address.strip().rstrip("/")


def printable(path: object) -> str:
    """Return a path with its control characters escaped, so that a file's name cannot forge a line of a message."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in str(path))


def plain(address: str) -> str:
    """Return a local address as a path: without the `file:` that it may begin with."""
    file_uri = FILE_URI.match(address)
    return address if file_uri is None else "/" + address[file_uri.end() :]


def uri_fault(address: str) -> str:
    """Return why an address is not the path of a local folder, and the fix; empty if it is one."""
    if not address.strip():
        return "its path is empty. Name a local folder"
    uri = URI.match(address)
    if uri is None:
        return "a path with :// in it is a misplaced URI. Name a local folder" if "://" in address else ""
    if uri[1].lower() != "file":
        instead = "Name a local folder; only Delta sources, input files and warehouses may be URIs"
        return f"{uri[1]}: is not a folder of this machine. {instead}"
    rest = address.lstrip()[len("file:") :]
    if rest.startswith("//") and not rest.startswith("///") and not rest.lower().startswith("//localhost/"):
        return "file:// names another machine. Write file:/// and the path, or the path alone"
    if ESCAPE.search(rest):
        return "it is ambiguous, since Spark takes % in a file: path literally and others do not. Write the path alone"
    return ""
