"""Statistics of a measure over trials, with nothing dropped in silence.

Percentiles interpolate linearly between the two nearest values (method 7 of Hyndman and Fan,
the default of NumPy). The interval of the median is the percentile bootstrap at 95 %; below
:data:`MIN_FOR_INTERVAL` values no interval can hold the median with that confidence (the whole
range covers it with probability ``1 - 2**(1 - n)``), so none is given. Values farther than
:data:`OUTLIER_FENCE` interquartile ranges from the quartiles (Tukey's "far out") are listed as
outliers and stay in every figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_FOR_INTERVAL = 6
CONFIDENCE = 0.95
RESAMPLES = 4000
OUTLIER_FENCE = 3.0
OUTLIER_RULE = f"Tukey: more than {OUTLIER_FENCE:g} interquartile ranges beyond the quartiles"
STATISTICS = ("n", "min", "median", "mean", "p95", "p99", "max", "sd", "ci_low", "ci_high")

# Two values of a run in virtual time differ by rounding of the clock; that is no outlier.
_RELATIVE_NOISE = 1e-6


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of one measure, in the unit of its values.

    :param n: number of finite values; the others are counted by ``missing``.
    :param sd: sample standard deviation (divisor n - 1); ``None`` below two values.
    :param ci_low: lower end of the bootstrap 95 % interval of the median; ``None`` when there
        are too few values for one.
    :param missing: how many of the values given were ``None``, NaN or infinite.
    :param outliers: positions, in the sequence given, of the values that
        :data:`OUTLIER_RULE` names; they are part of every figure.
    """

    n: int
    min: float | None = None
    median: float | None = None
    mean: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    sd: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    missing: int = 0
    outliers: tuple[int, ...] = ()

    def get(self, statistic: str) -> float | None:
        """One statistic by its name in :data:`STATISTICS`, as ``p95``.

        :raises KeyError: when there is no such statistic.
        """
        if statistic not in STATISTICS:
            raise KeyError(f"no statistic {statistic!r}; there are {', '.join(STATISTICS)}")
        value: float | None = getattr(self, statistic)
        return value

    def as_record(self) -> dict[str, Any]:
        """The statistics as JSON-compatible fields."""
        record: dict[str, Any] = {name: getattr(self, name) for name in STATISTICS}
        record["missing"] = self.missing
        record["outliers"] = list(self.outliers)
        return record


def summarise(values: Iterable[float | None], *, seed: int = 0) -> Summary:
    """Statistics of ``values``; one seed gives one interval.

    ``None``, NaN and infinities are counted as missing and are no part of the figures.
    """
    import numpy as np

    given = np.array([math.nan if v is None else v for v in values], dtype=np.float64)
    usable = np.isfinite(given)
    data = np.sort(given[usable])
    n = len(data)
    missing = len(given) - n
    if n == 0:
        return Summary(n=0, missing=missing)
    p25, median, p75, p95, p99 = (percentile(data, q) for q in (25, 50, 75, 95, 99))
    low, high = median_interval(data, seed=seed)
    return Summary(
        n=n,
        min=float(data[0]),
        median=median,
        mean=float(data.mean()),
        p95=p95,
        p99=p99,
        max=float(data[-1]),
        sd=float(data.std(ddof=1)) if n > 1 else None,
        ci_low=low,
        ci_high=high,
        missing=missing,
        outliers=_outliers(given, usable, p25, p75),
    )


def percentile(ordered: Sequence[float] | NDArray[np.float64], percent: float) -> float:
    """The percentile of values in ascending order; linear between the nearest two."""
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = float(ordered[below]), float(ordered[above])
    return low if low == high else low + (high - low) * (place - below)


def median_interval(
    ordered: NDArray[np.float64], *, seed: int = 0
) -> tuple[float | None, float | None]:
    """Bootstrap 95 % interval of the median of values in ascending order."""
    import numpy as np

    if len(ordered) < MIN_FOR_INTERVAL:
        return None, None
    medians = np.sort(resampled_medians(ordered, np.random.default_rng(seed)))
    tail = (1 - CONFIDENCE) / 2 * 100
    return percentile(medians, tail), percentile(medians, 100 - tail)


def resampled_medians(
    ordered: NDArray[np.float64], rng: np.random.Generator, resamples: int = RESAMPLES
) -> NDArray[np.float64]:
    """Medians of bootstrap resamples of values in ascending order.

    A resample draws n positions uniformly; only its one or two middle order statistics decide
    its median, and those of n uniform draws follow beta distributions. Drawing just them gives
    the same distribution as whole resamples, at a cost that does not grow with n.
    """
    import numpy as np

    n = len(ordered)
    lower = (n + 1) // 2  # rank, from 1, of the (lower) middle value
    at_lower = rng.beta(lower, n + 1 - lower, size=resamples)
    first = ordered[np.minimum((at_lower * n).astype(np.int64), n - 1)]
    if n % 2:
        return first
    at_upper = at_lower + (1 - at_lower) * rng.beta(1, n - lower, size=resamples)
    second = ordered[np.minimum((at_upper * n).astype(np.int64), n - 1)]
    middle: NDArray[np.float64] = first + (second - first) / 2
    return middle


def _outliers(
    given: NDArray[np.float64], usable: NDArray[np.bool_], p25: float, p75: float
) -> tuple[int, ...]:
    import numpy as np

    fence = max(OUTLIER_FENCE * (p75 - p25), _RELATIVE_NOISE * max(abs(p25), abs(p75)))
    outside = usable & ((given < p25 - fence) | (given > p75 + fence))
    return tuple(int(place) for place in np.flatnonzero(outside))
