"""Clock offsets of remote hosts: the truth always lies within the bound (TC87)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.timing.offset import (
    MAX_DRIFT,
    ClockMap,
    Exchange,
    OffsetEstimate,
    estimate_offset,
)

DELAYS = st.floats(min_value=0.0, max_value=0.5)
ROUNDING = 1e-6  # of floats around 1e6 s


def exchange(
    start_s: float, there_s: float, back_s: float, offset_s: float, rate: float
) -> Exchange:
    """What we would see of a host whose clock is ``offset + (1 + rate) * local``."""
    read_s = start_s + there_s
    return Exchange(start_s, offset_s + (1 + rate) * read_s, read_s + back_s)


@given(
    offset_s=st.floats(min_value=-1e6, max_value=1e6),
    delays=st.lists(st.tuples(DELAYS, DELAYS), min_size=1, max_size=8),
)
def test_the_true_offset_lies_within_half_the_shortest_round_trip(
    offset_s: float, delays: list[tuple[float, float]]
) -> None:
    exchanges = [exchange(n, there, back, offset_s, 0.0) for n, (there, back) in enumerate(delays)]
    estimate = estimate_offset(exchanges)
    assert estimate.error_s == pytest.approx(min(e.rtt_s for e in exchanges) / 2)
    assert abs(estimate.offset_s - offset_s) <= estimate.error_s + ROUNDING


@given(
    offset_s=st.floats(min_value=-1e4, max_value=1e4),
    rate=st.floats(min_value=-0.9 * MAX_DRIFT, max_value=0.9 * MAX_DRIFT),
    before=st.tuples(DELAYS, DELAYS),
    after=st.tuples(DELAYS, DELAYS),
    duration_s=st.floats(min_value=2.0, max_value=5000.0),
    share=st.floats(min_value=-0.5, max_value=1.5),
    survived=st.booleans(),
)
def test_an_instant_of_a_drifting_clock_lies_within_its_bound(
    offset_s: float,
    rate: float,
    before: tuple[float, float],
    after: tuple[float, float],
    duration_s: float,
    share: float,
    survived: bool,
) -> None:
    """Before, between and after the estimates, and when the host died before the second."""
    first = estimate_offset([exchange(10_000.0, *before, offset_s, rate)])
    second = estimate_offset([exchange(10_000.0 + duration_s, *after, offset_s, rate)])
    true_local_s = 10_000.0 + share * duration_s
    remote_s = offset_s + (1 + rate) * true_local_s
    mapped = ClockMap(first, second if survived else None).to_local(remote_s)
    assert abs(mapped.local_s - true_local_s) <= mapped.error_s + ROUNDING


@given(
    steps=st.lists(st.floats(min_value=0.0, max_value=0.01), min_size=2, max_size=6),
    place=st.integers(min_value=0, max_value=5),
)
def test_an_uneven_drift_in_one_direction_lies_within_the_bound(
    steps: list[float], place: int
) -> None:
    """The offset grows by a step each second, none like the other."""
    place = min(place, len(steps) - 1)
    clock_map = ClockMap(
        OffsetEstimate(0.0, 0.0, 0.0), OffsetEstimate(sum(steps), 0.0, float(len(steps)))
    )
    offset_s = sum(steps[:place])
    mapped = clock_map.to_local(place + offset_s)
    assert abs(mapped.local_s - place) <= mapped.error_s + ROUNDING


def test_the_bound_grows_with_the_time_since_a_host_was_last_asked() -> None:
    clock_map = ClockMap(OffsetEstimate(5.0, 1e-4, 100.0))
    near, far = clock_map.to_local(106.0), clock_map.to_local(1105.0)
    assert near.local_s == 101.0
    assert near.error_s < far.error_s == pytest.approx(1e-4 + 1000 * MAX_DRIFT, rel=1e-2)


def test_no_exchange_gives_no_offset() -> None:
    with pytest.raises(ValueError, match="at least one"):
        estimate_offset([])


def test_an_answer_before_its_question_is_refused() -> None:
    with pytest.raises(ValueError, match="before"):
        Exchange(2.0, 0.0, 1.0)


def test_estimates_in_the_wrong_order_are_refused() -> None:
    early, late = OffsetEstimate(0, 0, 1.0), OffsetEstimate(0, 0, 2.0)
    with pytest.raises(ValueError, match="later"):
        ClockMap(late, early)
