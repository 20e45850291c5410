"""Read a text file as Spark would, decompressed in parts of bounded size.

Spark chooses by the end of a file's name, in any case, and reads every other file as plain text:

| name | content |
| --- | --- |
| .gz .bz2 .deflate .zst | a stream, or several after each other |
| .lz4 .snappy | Hadoop's blocks, not the tools' own formats: a length, then the parts, each with its length |
"""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

CHUNK_BYTES = 1 << 20  # bytes at once
LARGEST_BLOCK = 1 << 26
LENGTH_BYTES = 4


class DamagedFileError(Exception):
    """A file is not of the format that its name says, or is cut off; the message is the decompressor's."""


def is_compressed(path: Path) -> bool:
    """Return whether Spark decompresses a file of this name."""
    return path.suffix.lower() in READERS


def decompress(file: BinaryIO, path: Path) -> BinaryIO:
    """Return the text of an open file as a stream; reading it may raise DamagedFileError. path: its name."""
    empty = file.seek(0, io.SEEK_END) == 0  # to Spark a file of no rows, whatever its name
    file.seek(0)
    read = None if empty else READERS.get(path.suffix.lower())
    return file if read is None else cast(BinaryIO, io.BufferedReader(_Parts(read(file)), CHUNK_BYTES))


class _Parts(io.RawIOBase):
    """A stream of the parts that an iterator yields."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            while not self._rest:
                self._rest = next(self._parts)
        except StopIteration:
            return 0
        except (OSError, EOFError, ValueError, zlib.error) as error:  # ValueError: Arrow's own
            raise DamagedFileError(str(error)) from error
        size = min(len(self._rest), len(buffer))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _read(stream: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: stream.read(CHUNK_BYTES), b"")


def _gunzip(file: BinaryIO) -> Iterator[bytes]:
    return _read(cast(BinaryIO, gzip.GzipFile(fileobj=file)))


def _bunzip(file: BinaryIO) -> Iterator[bytes]:
    return _read(cast(BinaryIO, bz2.BZ2File(file)))


def _inflate(file: BinaryIO) -> Iterator[bytes]:
    stream = zlib.decompressobj()
    packed = file.read(CHUNK_BYTES)
    while packed:
        yield stream.decompress(packed, CHUNK_BYTES)
        packed = (stream.unused_data if stream.eof else stream.unconsumed_tail) or file.read(CHUNK_BYTES)
        if not packed:
            yield stream.flush()
            if not stream.eof:
                raise EOFError("the stream ends in its middle")
        elif stream.eof:
            stream = zlib.decompressobj()


def _unzstandard(file: BinaryIO) -> Iterator[bytes]:
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]  # late: it is slow to load

    return _read(cast(Any, pyarrow).CompressedInputStream(file, "zstd"))


def _unblock(file: BinaryIO, codec: str) -> Iterator[bytes]:
    """Yield the parts of Hadoop's blocks; Hadoop stops at a block of no bytes, whatever follows."""
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]

    unpack: Callable[..., bytes] = cast(Any, pyarrow).Codec(codec).decompress
    while remaining := _read_length(file):
        while remaining > 0:
            packed = _read_exactly(file, _read_length(file))
            size = _lz4_size(unpack, packed, remaining) if codec == "lz4_raw" else _snappy_size(packed)
            if size > remaining:
                raise EOFError("a part of a block is longer than the block")
            yield unpack(packed, decompressed_size=size, asbytes=True)
            remaining -= size


def _snappy_size(packed: bytes) -> int:
    """Return the unpacked size, with which the part begins: seven bits a byte, the lowest first."""
    size = 0
    for position, byte in enumerate(packed[:5]):
        size |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return size
    raise EOFError("a part of a block has no length")


def _lz4_size(unpack: Callable[..., bytes], packed: bytes, largest: int) -> int:
    """Return the unpacked size, which LZ4 does not record: the smallest that suffices, usually the largest."""

    def fits(size: int) -> bool:
        try:
            unpack(packed, decompressed_size=size, asbytes=True)
        except OSError:
            return False
        return True

    if not fits(largest - 1):
        return largest
    return bisect_left(range(largest - 1), 1, key=fits)


def _read_length(file: BinaryIO) -> int:
    """Return the next length; zero at the end."""
    read = file.read(LENGTH_BYTES)
    if read and len(read) < LENGTH_BYTES:
        raise EOFError("it ends within a length")
    length = int.from_bytes(read, "big")
    if length > LARGEST_BLOCK:
        raise ValueError("it is not made of Hadoop's blocks")
    return length


def _read_exactly(file: BinaryIO, size: int) -> bytes:
    read = file.read(size)
    if len(read) < size or not size:
        raise EOFError("it ends within a block")
    return read


READERS: dict[str, Callable[[BinaryIO], Iterator[bytes]]] = {
    ".gz": _gunzip,
    ".bz2": _bunzip,
    ".deflate": _inflate,
    ".zst": _unzstandard,
    ".lz4": lambda file: _unblock(file, "lz4_raw"),
    ".snappy": lambda file: _unblock(file, "snappy"),
}
