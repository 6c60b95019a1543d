"""What pydantic finds, in words for people who have never heard of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from testbed.source.suggest import did_you_mean

_KINDS: Mapping[str, str] = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
"""Types of faults that say: a value of another kind belongs here."""

_LIMITS: Mapping[str, tuple[str, str]] = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_LENGTHS: Mapping[str, tuple[str, str]] = {
    "too_short": ("at least", "min_length"),
    "too_long": ("at most", "max_length"),
    "string_too_short": ("at least", "min_length"),
    "string_too_long": ("at most", "max_length"),
}


def show(value: Any) -> str:
    """A value as a message repeats it: not longer than people read."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def wrong_kind(name: str, kind: str, value: Any) -> str:
    """The message for a value of another kind than wanted."""
    seen = "and is empty" if value is None else f"not {show(value)}"
    return f"{name} must be {kind}, {seen}"


def in_words(detail: ErrorDetails, name: str) -> tuple[str, str]:
    """Message and hint of a fault. :param name: the thing in words, as ``'ring'``."""
    kind, given = detail["type"], detail["input"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    if kind in _KINDS:
        return wrong_kind(name, _KINDS[kind], given), ""
    if kind in _LIMITS:
        relation, key = _LIMITS[kind]
        return f"{name} must be {relation} {context[key]:g}, not {show(given)}", ""
    if kind in _LENGTHS:
        relation, key = _LENGTHS[kind]
        count = context[key]
        unit = "character" if kind.startswith("string") else "item"
        few = f"{name} is empty" if not given else f"{name} must not be {show(given)}"
        return f"{few}: it needs {relation} {count} {unit}{'' if count == 1 else 's'}", ""
    if kind == "string_pattern_mismatch":
        return _pattern(name, str(given), str(context["pattern"]))
    if kind in ("literal_error", "enum"):
        return _choice(name, given, str(context.get("expected", "")))
    if kind.startswith("union_tag"):
        return f"{name} says nothing that is known about its kind: {show(given)}", ""
    message = detail["msg"].removeprefix("Value error, ")
    # Our own validators say what is wrong, a semicolon, and what is allowed.
    message, _, hint = message.partition("; ")
    return f"{name}: {_lower(message)}", hint


def _choice(name: str, given: Any, expected: str) -> tuple[str, str]:
    options = [part.strip(" '") for part in expected.replace(" or ", ", ").split(",")]
    hint = did_you_mean(given, options) if isinstance(given, str) else f"allowed: {expected}"
    return f"{name} cannot be {show(given)}", hint


def _pattern(name: str, given: str, pattern: str) -> tuple[str, str]:
    """A name with characters that names do not have; the nearest that would do is proposed."""
    repairs: tuple[Callable[[str], str], ...] = (
        lambda text: re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-"),
        lambda text: re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_"),
        lambda text: re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-"),
    )
    for repair in repairs:
        near = repair(given)
        if near != given and re.search(pattern, near):
            return f"{name} cannot be {show(given)}", f"write {near}"
    return f"{name} cannot be {show(given)}", f"it has to match {pattern}"


def _lower(message: str) -> str:
    """Begin in lower case, but for words that are written in capitals."""
    return message[:1].lower() + message[1:] if message[:2] != message[:2].upper() else message
