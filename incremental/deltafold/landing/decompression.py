"""Read a text file as Spark would, decompressed in parts of bounded size.

Spark chooses by the end of a file's name, in any case, and reads every other file as it stands:

| name | what is in it |
| --- | --- |
| .gz .bz2 .deflate .zst | a stream, or several after each other |
| .lz4 .snappy | Hadoop's blocks: a length, and parts with theirs, until it is reached; not what lz4 or snappy write |
"""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

CHUNK_BYTES = 1 << 20  # bytes at once
LARGEST_BLOCK = 1 << 26
LENGTH_BYTES = 4


class DamagedFileError(Exception):
    """A file is not what its name says, or was cut off; the message is the decompressor's."""


def is_compressed(path: Path) -> bool:
    """Return whether Spark decompresses a file of this name."""
    return path.suffix.lower() in READERS


def decompress(file: BinaryIO, path: Path) -> BinaryIO:
    """Return the text of an open file as a stream; reading it raises DamagedFileError. path: how it is named."""
    empty = file.seek(0, io.SEEK_END) == 0  # to Spark a file of no rows, whatever its name
    file.seek(0)
    read = None if empty else READERS.get(path.suffix.lower())
    return file if read is None else cast(BinaryIO, io.BufferedReader(_Parts(read(file)), CHUNK_BYTES))


class _Parts(io.RawIOBase):
    """A stream of what an iterator yields."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest = parts, b""

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
        given = self._rest[: len(buffer)]
        buffer[: len(given)] = given
        self._rest = self._rest[len(given) :]
        return len(given)


def _read(stream: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: stream.read(CHUNK_BYTES), b"")


def _gunzip(file: BinaryIO) -> Iterator[bytes]:
    return _read(cast(BinaryIO, gzip.GzipFile(fileobj=file)))


def _bunzip(file: BinaryIO) -> Iterator[bytes]:
    return _read(cast(BinaryIO, bz2.BZ2File(file)))


def _inflate(file: BinaryIO) -> Iterator[bytes]:
    stream, given = zlib.decompressobj(), file.read(CHUNK_BYTES)
    while given:
        yield stream.decompress(given, CHUNK_BYTES)
        given = (stream.unused_data if stream.eof else stream.unconsumed_tail) or file.read(CHUNK_BYTES)
        if not given:
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
    while left := _length(file):
        while left > 0:
            packed = _exactly(file, _length(file))
            size = _unpacked_size(unpack, packed, left) if codec == "lz4_raw" else _snappy_size(packed)
            if size > left:
                raise EOFError("a part of a block is longer than the block")
            yield unpack(packed, decompressed_size=size, asbytes=True)
            left -= size


def _snappy_size(packed: bytes) -> int:
    """Return the unpacked size, with which the part begins: seven bits a byte, the lowest first."""
    size = 0
    for place, byte in enumerate(packed[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return size
    raise EOFError("a part of a block has no length")


def _unpacked_size(unpack: Callable[..., bytes], packed: bytes, most: int) -> int:
    """Return the unpacked size, which LZ4 does not record: the smallest that has room, usually the largest possible."""

    def fits(size: int) -> bool:
        try:
            unpack(packed, decompressed_size=size, asbytes=True)
        except OSError:
            return False
        return True

    if not fits(most - 1):
        return most
    low, high = 0, most - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low


def _length(file: BinaryIO) -> int:
    """Return the next length; zero at the end."""
    read = file.read(LENGTH_BYTES)
    if read and len(read) < LENGTH_BYTES:
        raise EOFError("it ends within a length")
    length = int.from_bytes(read, "big")
    if length > LARGEST_BLOCK:
        raise ValueError("it is not made of Hadoop's blocks")
    return length


def _exactly(file: BinaryIO, size: int) -> bytes:
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
