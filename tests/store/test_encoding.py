"""Events as lines of strict JSON, and back."""

import enum
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InternalError
from testbed.store.encoding import FLOAT_KEY, decode_event, encode_event

TEXTS = st.text(alphabet=st.characters(), max_size=20)  # lone surrogates included
KEYS = TEXTS.filter(lambda key: key != FLOAT_KEY)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(KEYS, children, max_size=4),
    max_leaves=12,
)
EVENTS = st.dictionaries(KEYS, VALUES, max_size=6)


def same(left: Any, right: Any) -> bool:
    """Equality in which NaN is itself, and 1 is not 1.0 nor True."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@given(EVENTS)
def test_any_event_comes_back_as_it_was(event: dict[str, Any]) -> None:
    assert same(decode_event(encode_event(event)), event)


@given(EVENTS)
def test_an_event_is_one_line_of_strict_json(event: dict[str, Any]) -> None:
    line = encode_event(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    json.loads(line.decode("utf-8"), parse_constant=refuse)


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ((1, 2), [1, 2]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (Path("a/b"), "a/b"),
        (Colour.RED, "red"),
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (np.float32("inf"), math.inf),
        ({1: "one", None: "none"}, {"1": "one", "null": "none"}),
        ({("host0", "p0"): 1}, None),
    ],
)
def test_values_of_other_types_are_stored_by_their_meaning(value: Any, stored: Any) -> None:
    event = decode_event(encode_event({"kind": "log", "value": value}))
    if stored is None:
        assert event["value"] == {"['host0', 'p0']": 1}
    else:
        assert event["value"] == stored


def test_a_value_that_cannot_be_stored_is_a_defect_that_names_it() -> None:
    with pytest.raises(InternalError, match="object"):
        encode_event({"kind": "log", "value": object()})


def test_an_event_that_contains_itself_is_a_defect() -> None:
    event: dict[str, Any] = {"kind": "log"}
    event["self"] = event
    with pytest.raises(InternalError, match="itself"):
        encode_event(event)
