"""Comparison of runs: what differs, by how much, and what can be claimed from it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testbed.errors import StoreError
from testbed.store.reader import StoredRun
from testbed.store.summary import KINDS, TrialValues
from testbed.store.trials import Kind
from testbed.timing.statistics import (
    CONFIDENCE,
    MIN_FOR_INTERVAL,
    Summary,
    percentile,
    resampled_medians,
    summarise,
)

SIGNIFICANCE = 1 - CONFIDENCE


@dataclass(frozen=True)
class MeasureComparison:
    """One measure (or phase) of two runs.

    :param point: variables of the sweep point; empty when the runs are compared as a whole.
    :param ratio: median of the new run over that of the base; ``None`` when it has no meaning.
    :param ratio_low: lower end of the bootstrap 95 % interval of the ratio.
    :param p_value: of the two-sided Mann-Whitney test that both come from one distribution;
        of this measure alone, not corrected for the number of measures.
    :param claim: the one sentence that these values allow.
    """

    kind: Kind
    name: str
    unit: str
    point: dict[str, Any]
    base: Summary
    new: Summary
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None
    claim: str

    def as_record(self) -> dict[str, Any]:
        """The comparison as JSON-compatible fields."""
        record = asdict(self)
        record["base"], record["new"] = self.base.as_record(), self.new.as_record()
        return record


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side.

    :param differences: what the runs do not share besides the values, in words; empty when like
        is compared with like.
    """

    base: str
    new: str
    base_backend: str
    new_backend: str
    differences: tuple[str, ...]
    measures: tuple[MeasureComparison, ...]

    def find(self, name: str) -> list[MeasureComparison]:
        """The comparisons of a measure, or else of the phase of that name."""
        for kind in KINDS:
            found = [m for m in self.measures if m.kind == kind and m.name == name]
            if found:
                return found
        return []

    def as_record(self) -> dict[str, Any]:
        """The comparison as JSON-compatible fields."""
        return {
            "base": self.base,
            "new": self.new,
            "backends": {"base": self.base_backend, "new": self.new_backend},
            "differences": list(self.differences),
            "measures": [measure.as_record() for measure in self.measures],
        }


def compare(
    base: StoredRun, new: StoredRun, *, across_backends: bool = False, seed: int = 0
) -> Comparison:
    """Compare two runs, measure by measure.

    Points of sweeps are compared with those of the same variables. Runs with one point each are
    compared as a whole, whatever its variables.

    :param across_backends: compare runs of different backends all the same; the difference is
        stated in every claim.
    :raises StoreError: when the backends differ, or no point is in both runs.
    """
    if base.backend != new.backend and not across_backends:
        raise StoreError(
            f"{base.id} was made on {base.backend} devices and {new.id} on {new.backend} ones: "
            "their values do not mean the same",
            remedy="compare them with --across-backends, if that difference is the question",
            backends=[base.backend, new.backend],
        )
    differences = tuple(_differences(base, new))
    measures = [
        _compare_one(kind, name, new.unit(name) if kind == "measures" else "s", point, pair, seed)
        for point, pair in _pairs(base, new)
        for kind in KINDS
        for name in pair[0].names(kind)
        if name in pair[1].names(kind)
    ]
    return Comparison(base.id, new.id, base.backend, new.backend, differences, tuple(measures))


def compare_many(
    runs: Sequence[StoredRun], *, across_backends: bool = False, seed: int = 0
) -> list[Comparison]:
    """Each further run against the first.

    :raises StoreError: when there are fewer than two runs; see also :func:`compare`.
    """
    if len(runs) < 2:
        raise StoreError("a comparison needs at least two runs")
    return [compare(runs[0], run, across_backends=across_backends, seed=seed) for run in runs[1:]]


def _differences(base: StoredRun, new: StoredRun) -> Iterator[str]:
    if base.backend != new.backend:
        yield f"backends differ: {base.backend} and {new.backend}"
    if base.virtual != new.virtual:
        yield "one ran in virtual time, the other in real time"
    for part in ("playbook", "rack"):
        before, after = base.header.get(part, {}), new.header.get(part, {})
        if before.get("name") != after.get("name"):
            yield f"{part}s differ: {before.get('name')} and {after.get('name')}"
        elif before.get("sha256") != after.get("sha256"):
            yield f"the {part} {after.get('name')} was changed in between"
    before, after = base.header.get("vars", {}), new.header.get("vars", {})
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"variable {name} differs: {before.get(name)} and {after.get(name)}"
    for run in (base, new):
        if run.finished is None:
            yield f"{run.id} has no end"


_Pair = tuple[TrialValues, TrialValues]


def _pairs(base: StoredRun, new: StoredRun) -> list[tuple[dict[str, Any], _Pair]]:
    of_base, of_new = _by_point(base), _by_point(new)
    if len(of_base) == 1 and len(of_new) == 1:
        return [({}, (of_base[0][1], of_new[0][1]))]
    pairs = [
        (variables, (values, other))
        for variables, values in of_base
        for candidate, other in of_new
        if candidate == variables
    ]
    if not pairs and of_base and of_new:
        raise StoreError(f"{base.id} and {new.id} have no sweep point in common")
    return pairs


def _by_point(run: StoredRun) -> list[tuple[dict[str, Any], TrialValues]]:
    points: dict[int, tuple[dict[str, Any], TrialValues]] = {}
    for row in run.trials():
        points.setdefault(row["point"], (row["vars"], TrialValues()))[1].add(row)
    return [point for _, point in sorted(points.items())]


def _compare_one(
    kind: Kind, name: str, unit: str, point: dict[str, Any], pair: _Pair, seed: int
) -> MeasureComparison:
    samples = [values.values(kind, name) for values in pair]
    base, new = (summarise(sample, seed=seed) for sample in samples)
    ratio = low = high = p_value = None
    if base.median is not None and new.median is not None and base.median > 0:
        ratio = new.median / base.median
        low, high = _ratio_interval(samples, seed)
    if min(base.n, new.n) >= MIN_FOR_INTERVAL:
        p_value = _mann_whitney(samples)
    claim = _claim(name, unit, base, new, (ratio, low, high), p_value)
    return MeasureComparison(
        kind, name, unit, dict(point), base, new, ratio, low, high, p_value, claim
    )


def _ratio_interval(
    samples: Sequence[Sequence[float]], seed: int
) -> tuple[float | None, float | None]:
    import numpy as np

    data = [np.asarray(sample, dtype=np.float64) for sample in samples]
    data = [np.sort(values[np.isfinite(values)]) for values in data]
    if min(map(len, data)) < MIN_FOR_INTERVAL or data[0][0] <= 0:
        return None, None
    rng = np.random.default_rng(seed)
    base, new = (resampled_medians(values, rng) for values in data)
    ratios = np.sort(new / base)
    tail = (1 - CONFIDENCE) / 2 * 100
    return percentile(ratios, tail), percentile(ratios, 100 - tail)


def _mann_whitney(samples: Sequence[Sequence[float]]) -> float:
    import numpy as np
    from scipy.stats import mannwhitneyu

    first, second = (np.asarray(s)[np.isfinite(np.asarray(s))] for s in samples)
    if np.ptp(np.concatenate([first, second])) == 0:
        return 1.0  # all values are one: nothing tells the runs apart
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ties are corrected for; scipy says so each time
        return float(mannwhitneyu(first, second, alternative="two-sided").pvalue)


def _claim(
    name: str,
    unit: str,
    base: Summary,
    new: Summary,
    ratios: tuple[float | None, float | None, float | None],
    p_value: float | None,
) -> str:
    ratio, low, high = ratios
    if base.n == 0 or new.n == 0:
        empty = "the base" if base.n == 0 else "the new run"
        return f"{name}: nothing to compare; {empty} has no value."
    if p_value is None:
        return (
            f"{name}: nothing can be claimed from {base.n} and {new.n} trials; "
            f"at least {MIN_FOR_INTERVAL} each are needed."
        )
    more, less = ("longer", "shorter") if unit == "s" else ("higher", "lower")
    if ratio is None or low is None or high is None:
        if p_value >= SIGNIFICANCE:
            return f"{name}: no difference can be claimed (p = {p_value:.2g})."
        return (
            f"{name}: the runs differ (p = {p_value:.2g}); a ratio to zero or less has no meaning."
        )
    figures = f"{ratio:.3g}×, 95 % interval {low:.3g}× to {high:.3g}×, p = {p_value:.2g}"
    if p_value >= SIGNIFICANCE or low <= 1 <= high:
        return f"{name}: no difference can be claimed ({figures})."
    return f"{name}: the new median is {more if ratio > 1 else less} ({figures})."
