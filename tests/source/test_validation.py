"""Faults of models, at the places of the file and in our own words."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from testbed.source.reader import parse
from testbed.source.suggest import did_you_mean
from testbed.source.validation import validate, validate_sections
from testbed.timing.distribution import Distribution
from testbed.timing.quantity import Seconds


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    wait: Seconds = 1.0
    kind: Literal["fast", "slow"] = "fast"


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: Annotated[int, Field(ge=1)] = 1
    really: bool = False
    names: Annotated[tuple[str, ...], Field(min_length=1)] = ("a",)
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()
    source: str = Field("x", alias="from")
    time: Distribution = Distribution.constant(0.0)


def _faults(text: str) -> list[str]:
    document = parse(text, "f.yaml")
    assert validate(Outer, document.value, document) is None
    return [str(fault) for fault in document.faults]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("count: 0", "1:8", "'count' must be at least 1, not 0"),
        ("count: many", "1:8", "'count' must be a whole number, not 'many'"),
        ("count: 1.5", "1:8", "'count' must be a whole number, not 1.5"),
        ("count: '3'", "1:8", "'count' must be a whole number, not '3'"),
        ("count:", "1:7", "'count' must be a whole number, and is empty"),
        ("really: yes", "1:9", "'really' must be true or false, not 'yes'"),
        ("names: []", "1:8", "'names' is empty: it needs at least 1 item"),
        ("names: a", "1:8", "'names' must be a list, not 'a'"),
        ("names: [a, 1]", "1:12", "item 2 of 'names' must be a text, not 1"),
        ("inner: {wait: soon}", "1:15", "'wait': 'soon' is no quantity"),
        ("inner: {wait: -1 s}", "1:15", "must not be negative"),
        ("inner: {kind: fsat}", "1:15", "did you mean 'fast'?"),
        ("inner: {wiat: 1 s}", "1:9", "did you mean 'wait'?"),
        ("inner: 3", "1:8", "'inner' must be a mapping, not 3"),
        ("many: [{}, {kindd: x}]", "1:13", "did you mean 'kind'?"),
        ("form: x", "1:1", "did you mean 'from'?"),
        ("time: {kind: uniform, low: 1 s}", "1:1", "key 'high' is missing"),
    ],
)
def test_faults(text: str, place: str, words: str) -> None:
    """TC44."""
    (fault,) = _faults(text)
    assert fault.startswith(f"f.yaml:{place}: ")
    assert words in fault


def test_all_faults_at_once() -> None:
    assert len(_faults("count: 0\nreally: maybe\nnames: []\nextra: 1\n")) == 4


def test_values_that_are_not_known_yet_are_passed_over() -> None:
    document = parse("count: '{{ n }}'\nnames: []\n", "f.yaml")
    validate(Outer, document.value, document, unknown=[("count",)])
    assert [fault.place.line for fault in document.faults] == [2]


def test_unknown_keys_are_told_whatever_their_value() -> None:
    document = parse("cuont: '{{ n }}'\n", "f.yaml")
    validate(Outer, document.value, document, unknown=[("cuont",)])
    assert "did you mean 'count'?" in str(document.faults[0])


def test_a_faulty_section_does_not_hide_the_others() -> None:
    document = parse("count: 0\ninner: {kind: x, wait: 2 s}\nnames: [b]\n", "f.yaml")
    model, broken = validate_sections(Outer, document.value, document, what="it", stand_in={})
    assert model is not None
    assert broken == {"count", "inner"}
    assert (model.count, model.inner.wait, model.names) == (1, 2.0, ("b",))
    assert len(document.faults) == 2


def test_a_misspelt_section_is_broken_too() -> None:
    document = parse("name: [b]\n", "f.yaml")
    _, broken = validate_sections(Outer, document.value, document, what="it", stand_in={})
    assert broken == {"name", "names"}


def test_did_you_mean() -> None:
    assert did_you_mean("hots1", ["host1", "ocs"]) == "did you mean 'host1'?"
    assert did_you_mean("HOST1", ["host1"]) == "did you mean 'host1'?"
    assert did_you_mean("zebra", ["host1", "ocs"]) == "allowed: host1, ocs"
    assert did_you_mean("zebra", []) == "there is none"
    assert did_you_mean("q", [f"x{n:02}" for n in range(20)]).endswith("and 8 more")
