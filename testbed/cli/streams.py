"""Standard streams whose reader has gone away."""

from __future__ import annotations

import os
from typing import TextIO


def silence(stream: TextIO | None) -> None:
    """Let what is still buffered go nowhere, so that nothing complains when Python ends."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def flush_or_silence(stream: TextIO | None) -> None:
    """Write out what is buffered; when nobody reads it, silence the stream."""
    try:
        if stream is not None:
            stream.flush()
    except OSError:
        silence(stream)
