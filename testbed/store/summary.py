"""Outcome and statistics of a run, over its trials: which are counted is decided here alone.

Counted are the trials that are no warm-up. Their figures come from those that passed; the others
are stated as ``failed``, never mixed in and never left out unsaid. A value that a passed trial
could not take is stated as ``missing``.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from testbed.store.trials import UNFINISHED, Kind, TrialRow, as_numbers
from testbed.timing.statistics import Summary, summarise

if TYPE_CHECKING:
    from testbed.store.reader import StoredRun

KINDS: tuple[Kind, ...] = ("measures", "phases")
PASSED = "passed"


class TrialValues:
    """Values of counted trials, by name; 16 bytes a value, so that many trials fit.

    :ivar trials: counted trials that ended.
    :ivar failed: those among them that did not pass.
    :ivar warmup: warm-up trials.
    :ivar unfinished: trials that were cut off.
    """

    def __init__(self) -> None:
        self.trials = self.failed = self.warmup = self.unfinished = 0
        self._values: dict[Kind, dict[str, array[float]]] = {kind: {} for kind in KINDS}
        self._of_trial: dict[Kind, dict[str, array[int]]] = {kind: {} for kind in KINDS}

    def add(self, row: TrialRow | Mapping[str, Any]) -> None:
        """Count one trial: its row, or the event ``trial.finished``, which has what is needed."""
        if row["status"] == UNFINISHED:
            self.unfinished += 1
            return
        if row["warmup"]:
            self.warmup += 1
            return
        self.trials += 1
        if row["status"] != PASSED:
            self.failed += 1
            return
        for kind in KINDS:
            for name, value in as_numbers(row[kind]).items():
                if name not in self._values[kind]:
                    self._values[kind][name] = array("d")
                    self._of_trial[kind][name] = array("q")
                self._values[kind][name].append(math.nan if value is None else value)
                self._of_trial[kind][name].append(row["trial"])

    def names(self, kind: Kind) -> list[str]:
        """Names that some trial had, in order of appearance."""
        return list(self._values[kind])

    def values(self, kind: Kind, name: str) -> array[float]:
        """One value a passed trial that had the name; NaN where it could not be taken."""
        return self._values[kind].get(name, array("d"))

    def summary(self, kind: Kind, name: str, *, seed: int = 0) -> Summary:
        """Statistics of one measure or phase; ``outliers`` are places among its values."""
        return summarise(self.values(kind, name), seed=seed)

    def record(self, kind: Kind, name: str, *, unit: str = "s", seed: int = 0) -> dict[str, Any]:
        """Statistics of one measure or phase; ``outliers`` are numbers of trials."""
        record = self.summary(kind, name, seed=seed).as_record()
        of_trial = self._of_trial[kind].get(name, array("q"))
        record["outliers"] = [of_trial[place] for place in record["outliers"]]
        return {"unit": unit, **record}


def collect(rows: Iterable[TrialRow]) -> TrialValues:
    """All counted values of some trials."""
    values = TrialValues()
    for row in rows:
        values.add(row)
    return values


def summary_record(run: StoredRun) -> dict[str, Any]:
    """The record of DESIGN section 10, of a run that may have no end."""
    pooled = TrialValues()
    points: dict[int, tuple[dict[str, Any], TrialValues]] = {}
    for row in run.trials():
        pooled.add(row)
        points.setdefault(row["point"], (row["vars"], TrialValues()))[1].add(row)
    statistics = _statistics(run, pooled)
    expectations, devices = run.closing_events()
    finished = run.finished or {}
    return {
        "run": run.id,
        "playbook": run.playbook,
        "status": run.status,
        "exit_code": finished.get("exit_code"),
        "backend": run.backend,
        "rack": run.rack,
        "wall": run.header.get("wall"),
        "seed": run.header.get("seed"),
        "virtual": run.virtual,
        "trials": pooled.trials,
        "failed": pooled.failed,
        "warmup": pooled.warmup,
        "unfinished": pooled.unfinished,
        **statistics,
        "expectations": [
            {key: event.get(key) for key in ("text", "passed", "value", "limit", "point")}
            for event in expectations
        ],
        "points": [
            {
                "point": number,
                "vars": variables,
                "trials": values.trials,
                "failed": values.failed,
                **(statistics if len(points) == 1 else _statistics(run, values)),
            }
            for number, (variables, values) in sorted(points.items())
        ],
        "dirty": _not_safe(devices),
        "error": finished.get("error"),
    }


def _statistics(run: StoredRun, values: TrialValues) -> dict[str, dict[str, Any]]:
    return {
        kind: {
            name: values.record(kind, name, unit=run.unit(name) if kind == "measures" else "s")
            for name in values.names(kind)
        }
        for kind in KINDS
    }


def _not_safe(devices: Iterable[dict[str, Any]]) -> list[str]:
    """Devices whose last check did not find them safe."""
    last = {event["device"]: bool(event.get("safe")) for event in devices}
    return sorted(device for device, safe in last.items() if not safe)
