"""Check that a process of this user is alive, is the same one as before, and listens on a loopback port.

On Linux it reads /proc, on other systems the output of `ps` and `lsof`. If that fails, the answer is no.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path

PROC = Path("/proc")
LOOPBACK_ADDRESS = ip_address("127.0.0.1")
LISTENING = "0A"
ENDED = "ZX"  # states of a process that has ended, though its number is still taken


def start_of(process: int) -> str | None:
    """Return the start time of a process as an opaque text; None if it does not exist or is another user's.

    It identifies a process whose number is reused: /proc counts ticks since boot, and a boot has an id.
    """
    if not (PROC / "self" / "stat").exists():
        return _start_by_ps(process)
    try:
        owner = (PROC / str(process)).stat().st_uid
        fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
        boot = (PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except OSError:
        return None
    return f"{boot} {fields[19]}" if owner == os.geteuid() and fields[0] not in ENDED else None


def listens(process: int, port: int) -> bool:
    """Return whether a connection to a port of 127.0.0.1 would reach this process and no other."""
    if not (PROC / "net" / "tcp").exists():
        return _listens_by_lsof(process, port)
    try:
        sockets = [*_listening("tcp", port), *_listening("tcp6", port)]
        own = {_target(descriptor) for descriptor in (PROC / str(process) / "fd").iterdir()}
    except OSError:
        return False
    return bool(sockets) and all(f"socket:[{inode}]" in own for inode in sockets)


def _target(descriptor: Path) -> str:
    """Return the target of an open descriptor; empty if it has been closed meanwhile."""
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


def _listening(table: str, port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port of 127.0.0.1."""
    path = PROC / "net" / table
    for line in path.read_text().splitlines()[1:] if path.exists() else ():
        fields = line.split()
        address, _, number = fields[1].partition(":")
        if fields[3] == LISTENING and int(number, 16) == port and _takes_loopback(address):
            yield fields[9]


def _takes_loopback(address: str) -> bool:
    """Return whether an address of /proc/net (words in the machine's byte order) is 127.0.0.1 or 0.0.0.0."""
    words = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
    bound = ip_address(struct.pack(f"={len(words)}I", *words))
    if isinstance(bound, IPv6Address):
        bound = bound.ipv4_mapped or bound
    return bound.is_unspecified or bound == LOOPBACK_ADDRESS


def _start_by_ps(process: int) -> str | None:
    shown = _run("ps", "-o", "uid=", "-o", "stat=", "-o", "lstart=", "-p", str(process)).split(maxsplit=2)
    if len(shown) < 3 or shown[0] != str(os.geteuid()) or shown[1][0] in ENDED:
        return None
    return " ".join(shown[2].split())


def _listens_by_lsof(process: int, port: int) -> bool:
    shown = _run("lsof", "-nP", "-a", "-p", str(process), f"-iTCP:{port}", "-sTCP:LISTEN", "-Fn")
    return re.search(rf"^n(127\.0\.0\.1|\[::ffff:127\.0\.0\.1\]):{port}$", shown, re.MULTILINE) is not None


def _run(*command: str) -> str:
    """Return the output of a command in the C locale and UTC; empty if it cannot run."""
    environment = os.environ | {"LC_ALL": "C", "TZ": "UTC0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
