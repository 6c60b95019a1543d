"""Lines of the event log, all of them or those of a few kinds, found without parsing the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_CHUNK_BYTES = 1 << 20


def kinds_pattern(*beginnings: str) -> re.Pattern[bytes]:
    """Matches lines of events whose kind begins with one of the texts.

    A text inside an event cannot look like this, as its quotes are escaped; an inner object can,
    so that whoever asks still checks the kind of what was found.
    """
    choices = b"|".join(re.escape(text.encode()) for text in beginnings)
    return re.compile(b'"kind":"(?:' + choices + b")")


def whole_lines(
    log: BinaryIO, wanted: re.Pattern[bytes] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of the lines in which the pattern is found; without one, of every line.

    A torn last line, without its newline, is no line.
    """
    base = 0
    rest = b""
    while data := log.read(_CHUNK_BYTES):
        chunk = rest + data
        end = chunk.rfind(b"\n") + 1
        whole, rest = chunk[:end], chunk[end:]
        if wanted is None:
            offset = base
            for text in whole.split(b"\n")[:-1]:
                yield offset, text + b"\n"
                offset += len(text) + 1
        else:
            for start, line in _found(whole, wanted):
                yield base + start, line
        base += end


def _found(chunk: bytes, wanted: re.Pattern[bytes]) -> Iterator[tuple[int, bytes]]:
    place = 0
    while match := wanted.search(chunk, place):
        start = chunk.rfind(b"\n", 0, match.start()) + 1
        place = chunk.index(b"\n", match.end()) + 1
        yield start, chunk[start:place]


def line_number(path: Path, offset: int) -> int:
    """The number, from 1, of the line that starts at an offset; for messages."""
    with path.open("rb") as log:
        return log.read(offset).count(b"\n") + 1
