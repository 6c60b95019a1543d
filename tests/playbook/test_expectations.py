"""Expectations: measure, statistic, comparison, limit with a unit."""

from __future__ import annotations

import pytest

from testbed.playbook.expectations import OPERATORS, holds, parse_expectation, parse_limit


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("recovery.p95 < 1.2 s", ("recovery", "p95", "<", "1.2 s")),
        ("recovery.p95<1.2s", ("recovery", "p95", "<", "1.2s")),
        ("lost-steps.max <= 0", ("lost-steps", "max", "<=", "0")),
        ("  up.n >= 10 ", ("up", "n", ">=", "10")),
        ("up.median == 3", ("up", "median", "==", "3")),
    ],
)
def test_taking_apart(text: str, parts: tuple[str, str, str, str]) -> None:
    parsed = parse_expectation(text)
    assert (parsed.measure, parsed.statistic, parsed.operator, parsed.limit) == parts


@pytest.mark.parametrize(
    "text", ["", "recovery", "recovery < 1 s", "a.b.c < 1", "a.p95 =< 1", "a.p95 <", "1.p95 < 2"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no expectation; write measure"):
        parse_expectation(text)


@pytest.mark.parametrize(
    ("text", "unit", "statistic", "limit"),
    [
        ("100 ms", "s", "p95", 0.1),
        ("2 min", "s", "max", 120.0),
        ("3", "s", "max", 3.0),
        ("25", "steps", "max", 25.0),
        ("25 steps", "steps", "max", 25.0),
        ("350 W", "W", "mean", 350.0),
        ("10", "s", "n", 10.0),
    ],
)
def test_limits_are_si(text: str, unit: str, statistic: str, limit: float) -> None:
    assert parse_limit(text, unit=unit, statistic=statistic) == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "unit", "statistic"),
    [("100 Mb/s", "s", "p95"), ("10 s", "s", "n"), ("1.5", "s", "n"), ("3 s", "steps", "max")],
)
def test_limits_of_another_unit(text: str, unit: str, statistic: str) -> None:
    with pytest.raises(ValueError, match=r"is no (quantity|count); write"):
        parse_limit(text, unit=unit, statistic=statistic)


def test_a_missing_value_is_never_within_the_limit() -> None:
    assert all(not holds(None, comparison, 1.0) for comparison in OPERATORS)
    assert holds(1.0, "<=", 1.0)
    assert not holds(1.0, "<", 1.0)
    assert holds(2.0, ">", 1.0)
    assert holds(1.0, "==", 1.0)
    assert holds(2.0, "!=", 1.0)
