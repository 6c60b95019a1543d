"""One event as one line of strict JSON, and back.

JSON has no word for NaN and the infinities, and a power meter in the dark does read -inf dBm, so
they are written as ``{"$float": "-inf"}``; :data:`FLOAT_KEY` is a reserved word in events.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

from testbed.errors import InternalError
from testbed.store.events import Event

FLOAT_KEY = "$float"
_FLOAT_BYTES = b'"$float"'


def encode_event(event: Mapping[str, Any]) -> bytes:
    """The event as a whole line, newline included.

    :raises InternalError: when it holds something that JSON cannot hold.
    """
    try:
        return _encode(event).encode() + b"\n"
    except (TypeError, ValueError):  # UnicodeEncodeError is a ValueError
        # Rare: a number that is not finite, a key that is no text, a lone surrogate.
        return compact_json(event).encode() + b"\n"


def compact_json(value: Any) -> str:
    """Any value of an event as strict JSON on one line.

    :raises InternalError: when it holds something that JSON cannot hold.
    """
    try:
        text = _encode(_plain(value))
    except RecursionError as error:
        raise InternalError("an event contains itself, which cannot be stored") from error
    # A lone surrogate (of a file name that is not UTF-8) has no UTF-8 form, but an escape.
    return text if _is_utf8(text) else _encode_ascii(_plain(value))


def decode_event(line: bytes) -> Event:
    """The event of one whole line. :raises ValueError: when the line is no JSON object."""
    event = json.loads(line, object_hook=_restore if _FLOAT_BYTES in line else None)
    if not isinstance(event, dict):
        raise ValueError("a line of the event log is no JSON object")
    return event


def _restore(value: dict[str, Any]) -> Any:
    if len(value) == 1 and isinstance(value.get(FLOAT_KEY), str):
        return float(value[FLOAT_KEY])
    return value


def _default(value: Any) -> Any:
    """Called by the encoder for a value that is no JSON type itself."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "item"):  # a NumPy scalar
        return value.item()
    raise InternalError(
        f"an event holds a {type(value).__name__}, which cannot be stored: {value!r:.80}"
    )


def _plain(value: Any) -> Any:
    """A copy in plain JSON types, non-finite numbers spelt out and keys as texts."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {FLOAT_KEY: str(float(value))}
    if isinstance(value, Enum):
        return _plain(value.value)
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _plain(_default(value))


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(_plain(key))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_default
).encode
_encode_ascii = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_default).encode
