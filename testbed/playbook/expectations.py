"""Expectations: a limit on a statistic of a measure, as ``recovery.p95 < 1.2 s``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from testbed.timing.quantity import BYTES, SECONDS, WATTS, parse_quantity

STATISTICS = ("n", "min", "median", "mean", "p95", "p99", "max", "sd")
UNITS: Mapping[str, Mapping[str, float]] = {"s": SECONDS, "B": BYTES, "W": WATTS}
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_SHAPE = re.compile(
    r"\s*(?P<measure>[A-Za-z][\w-]*)\.(?P<statistic>\w+)\s*(?P<operator><=|>=|==|!=|<|>)\s*"
    r"(?P<limit>\S.*?)\s*"
)


@dataclass(frozen=True, slots=True)
class ParsedExpectation:
    """The parts of an expectation; ``limit`` is still a text, whose unit depends on the measure."""

    measure: str
    statistic: str
    operator: str
    limit: str


def parse_expectation(text: str) -> ParsedExpectation:
    """Take an expectation apart. :raises ValueError: with the form that is wanted."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is no expectation; write measure.statistic < limit, as recovery.p95 < 1.2 s"
        )
    return ParsedExpectation(**match.groupdict())


def parse_limit(text: str, *, unit: str, statistic: str) -> float:
    """A limit in SI. A count (``n``) has no unit. :raises ValueError: with what is allowed."""
    if statistic == "n":
        if not text.isdigit():
            raise ValueError(f"{text!r} is no count; write a whole number, without a unit")
        return float(text)
    return parse_quantity(text, dict(UNITS.get(unit, {unit: 1.0})))


def holds(value: float | None, comparison: str, limit: float) -> bool:
    """Whether the value is within the limit; a missing value never is."""
    return value is not None and OPERATORS[comparison](value, limit)
