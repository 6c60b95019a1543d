"""Regression rules: ``recovery.median > 1.1x`` fails a comparison in which that holds."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.errors import PlaybookError
from testbed.report.compare import Comparison, MeasureComparison
from testbed.timing.quantity import (
    BITS_PER_SECOND,
    BYTES,
    DECIBELS,
    SECONDS,
    WATTS,
    format_value,
    parse_quantity,
)
from testbed.timing.statistics import STATISTICS

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_RULE = re.compile(r"(?P<name>\S+)\.(?P<statistic>\w+)\s*(?P<operator>[<>]=?)\s*(?P<limit>\S.*)")
_FACTOR = re.compile(r"(\d+(?:\.\d+)?)\s*[x×]")
_EXAMPLE = "write it as `recovery.median > 1.1x` or `recovery.p95 > 1.2 s`"


@dataclass(frozen=True)
class RuleResult:
    """What became of a rule in one comparison.

    :param failed: whether the rule's condition holds, or could not be judged.
    :param value: the ratio, or the statistic of the new run, that was judged.
    """

    rule: str
    point: dict[str, Any]
    failed: bool
    value: float | None
    detail: str


@dataclass(frozen=True)
class Rule:
    """A condition that fails a comparison.

    :param relative: whether ``limit`` is a factor on the base run's statistic, else it is a
        value in SI units for that of the new run.
    """

    text: str
    name: str
    statistic: str
    operator: str
    limit: float
    relative: bool

    def check(self, comparison: Comparison) -> list[RuleResult]:
        """One result a sweep point. What cannot be judged has failed: silence is no success."""
        found = comparison.find(self.name)
        if not found:
            detail = f"neither run, or only one, has a measure or phase {self.name!r}"
            return [RuleResult(self.text, {}, True, None, detail)]
        return [self._check_one(measure) for measure in found]

    def _check_one(self, measure: MeasureComparison) -> RuleResult:
        base, new = measure.base.get(self.statistic), measure.new.get(self.statistic)
        if new is None or (self.relative and base is None):
            return RuleResult(self.text, measure.point, True, None, "there is no value to judge")
        if not self.relative:
            return self._result(measure, new, format_value(new, measure.unit))
        if not base or base < 0:
            detail = "a ratio to zero or less has no meaning"
            return RuleResult(self.text, measure.point, True, None, detail)
        shown = f"{format_value(new, measure.unit)} from {format_value(base, measure.unit)}"
        return self._result(measure, new / base, f"{new / base:.3g}× ({shown})")

    def _result(self, measure: MeasureComparison, value: float, detail: str) -> RuleResult:
        failed = _OPERATORS[self.operator](value, self.limit)
        return RuleResult(self.text, measure.point, failed, value, detail)


def fail_if(text: str) -> Rule:
    """Read a rule: ``<measure or phase>.<statistic> <operator> <factor>x``, or a quantity.

    :raises PlaybookError: when it is none, with what is allowed.
    """
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise PlaybookError(f"{text!r} is no rule", remedy=_EXAMPLE)
    if match["statistic"] not in STATISTICS:
        raise PlaybookError(
            f"{text!r}: no statistic {match['statistic']!r}",
            remedy=f"choose one of {', '.join(STATISTICS)}",
        )
    factor = _FACTOR.fullmatch(match["limit"])
    try:
        limit = (
            float(factor[1])
            if factor
            else parse_quantity(
                match["limit"], SECONDS | BITS_PER_SECOND | BYTES | WATTS | DECIBELS
            )
        )
    except ValueError as error:
        raise PlaybookError(f"{text!r}: {error}", remedy=_EXAMPLE) from error
    return Rule(
        text=text.strip(),
        name=match["name"],
        statistic=match["statistic"],
        operator=match["operator"],
        limit=limit,
        relative=factor is not None,
    )
