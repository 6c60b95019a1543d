"""Statistics of measures: nothing dropped in silence, and an interval that means what it says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.timing.statistics import (
    MIN_FOR_INTERVAL,
    STATISTICS,
    percentile,
    resampled_medians,
    summarise,
)

FINITE = st.floats(min_value=-1e9, max_value=1e9)


@given(st.lists(FINITE, min_size=1, max_size=60))
def test_figures_are_those_of_numpy(values: list[float]) -> None:
    summary = summarise(values)
    assert summary.n == len(values)
    assert (summary.min, summary.max) == (min(values), max(values))
    for name, percent in (("median", 50), ("p95", 95), ("p99", 99)):
        expected = float(np.percentile(values, percent, method="linear"))
        assert summary.get(name) == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert summary.mean == pytest.approx(float(np.mean(values)), rel=1e-9, abs=1e-6)
    if len(values) > 1:
        assert summary.sd == pytest.approx(float(np.std(values, ddof=1)), rel=1e-9, abs=1e-6)


@given(st.lists(FINITE, min_size=1, max_size=60), st.floats(min_value=0, max_value=100))
def test_a_percentile_lies_within_the_values_and_grows_with_its_percent(
    values: list[float], percent: float
) -> None:
    ordered = sorted(values)
    value = percentile(ordered, percent)
    assert ordered[0] <= value <= ordered[-1]
    assert percentile(ordered, percent / 2) <= value


@given(st.lists(FINITE, min_size=MIN_FOR_INTERVAL, max_size=40))
def test_the_interval_lies_within_the_values(values: list[float]) -> None:
    summary = summarise(values)
    assert summary.ci_low is not None
    assert summary.ci_high is not None
    assert min(values) <= summary.ci_low <= summary.ci_high <= max(values)


def test_no_value_gives_no_figure_but_a_count() -> None:
    summary = summarise([])
    assert (summary.n, summary.missing) == (0, 0)
    assert all(summary.get(name) is None for name in STATISTICS if name != "n")


def test_one_value_has_no_spread() -> None:
    summary = summarise([2.5])
    assert summary.min == summary.median == summary.p99 == summary.max == 2.5
    assert summary.sd is summary.ci_low is summary.ci_high is None


def test_values_that_could_not_be_taken_are_counted() -> None:
    summary = summarise([1.0, None, math.nan, 3.0, math.inf])
    assert (summary.n, summary.missing, summary.mean) == (2, 3, 2.0)


def test_outliers_are_named_by_their_place_and_stay_in_the_figures() -> None:
    values = [None, 1.0, 1.1, 0.9, 9.0, 1.0, 1.05]
    summary = summarise(values)
    assert summary.outliers == (4,)
    assert summary.max == 9.0
    assert summary.n == 6


def test_rounding_of_the_clock_makes_no_outlier() -> None:
    assert summarise([0.1] * 9 + [0.1 + 1e-12]).outliers == ()


def test_too_few_values_give_no_interval() -> None:
    """Below six values even the whole range holds the median less often than 95 % of the time."""
    assert 1 - 2 ** (1 - MIN_FOR_INTERVAL) > 0.95 > 1 - 2 ** (2 - MIN_FOR_INTERVAL)
    assert summarise(list(range(MIN_FOR_INTERVAL - 1))).ci_low is None
    assert summarise(list(range(MIN_FOR_INTERVAL))).ci_low is not None


def test_one_seed_gives_one_interval() -> None:
    values = list(np.random.default_rng(3).lognormal(size=30))
    assert summarise(values, seed=5) == summarise(values, seed=5)


def test_an_unknown_statistic_is_refused_with_those_there_are() -> None:
    with pytest.raises(KeyError, match="ci_high"):
        summarise([1.0]).get("p96")


@pytest.mark.parametrize("size", [6, 7, 25, 40])
def test_the_short_cut_draws_medians_of_whole_resamples(size: int) -> None:
    """Only the middle order statistics are drawn; whole resamples must agree with them."""
    rng = np.random.default_rng(11)
    ordered = np.sort(rng.lognormal(size=size))
    quick = resampled_medians(ordered, rng, 20_000)
    whole = np.median(rng.choice(ordered, size=(20_000, size)), axis=1)
    for percent in (2.5, 16, 50, 84, 97.5):
        # Share of each below the same value: binomial noise of 20,000 draws is below 1.1 %.
        value = np.percentile(whole, percent)
        assert np.mean(quick <= value) == pytest.approx(np.mean(whole <= value), abs=0.015)
        assert np.mean(quick < value) == pytest.approx(np.mean(whole < value), abs=0.015)


def test_the_interval_holds_the_true_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2026)
    rounds = 600
    held = 0
    for seed in range(rounds):
        summary = summarise(rng.lognormal(mean=0.0, sigma=0.5, size=21), seed=seed)
        held += summary.ci_low <= 1.0 <= summary.ci_high  # type: ignore[operator]
    assert 0.92 <= held / rounds <= 0.99
