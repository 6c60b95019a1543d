"""What trials gave, kept small: values of measures, counts, and the verdicts over them."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Any

from testbed.errors import TestbedError
from testbed.playbook.expectations import holds
from testbed.playbook.model import Expectation

PASSED, FAILED, INTERRUPTED = "passed", "failed", "interrupted"


@dataclass
class TrialOutcome:
    """One trial: its status, its measures and phases (``None`` where not taken), its errors.

    :ivar stops: no further trial may follow.
    """

    status: str = FAILED
    measures: dict[str, float | None] = field(default_factory=dict)
    phases: dict[str, float | None] = field(default_factory=dict)
    error: TestbedError | None = None
    stops: bool = False


@dataclass
class PointValues:
    """Values of the counted trials of one sweep point; eight bytes a value.

    :ivar failed: counted trials that did not pass; their values are not among the values.
    """

    trials: int = 0
    failed: int = 0
    values: dict[str, array[float]] = field(default_factory=dict)

    def add(self, outcome: TrialOutcome) -> None:
        """Count a trial that is no warm-up."""
        self.trials += 1
        if outcome.status != PASSED:
            self.failed += 1
            return
        for name, value in outcome.measures.items():
            self.values.setdefault(name, array("d")).append(math.nan if value is None else value)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an expectation is met at a sweep point, and the value that says so.

    :ivar missing: passed trials that could not take the measure.
    """

    expectation: Expectation
    passed: bool
    value: float | None
    missing: int = 0

    def as_fields(self) -> dict[str, Any]:
        """Fields of the event ``expectation``."""
        fields: dict[str, Any] = {
            "text": self.expectation.text,
            "passed": self.passed,
            "value": self.value,
            "limit": self.expectation.limit,
        }
        return fields | ({"missing": self.missing} if self.missing else {})


def verdicts(
    expectations: tuple[Expectation, ...], point: PointValues, *, seed: int
) -> list[Verdict]:
    """Check every expectation at a sweep point.

    A limit on a measure that a trial which passed could not take is not met: a figure over the
    others would hide it.
    """
    from testbed.timing.statistics import summarise

    summaries = {
        name: summarise(point.values.get(name, ()), seed=seed)
        for name in dict.fromkeys(e.measure for e in expectations)
    }
    found = []
    for expectation in expectations:
        summary = summaries[expectation.measure]
        value = summary.get(expectation.statistic)
        met = holds(value, expectation.operator, expectation.limit) and not summary.missing
        found.append(Verdict(expectation, met, value, summary.missing))
    return found
