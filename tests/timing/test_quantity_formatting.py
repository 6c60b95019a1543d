"""Quantities as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.timing.quantity import SECONDS, format_seconds, format_value, parse_quantity


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (0.0, "0 s"),
        (2e-9, "2 ns"),
        (1.5e-6, "1.50 µs"),
        (0.0999, "99.9 ms"),
        (0.9996, "1.00 s"),
        (12.345, "12.3 s"),
        (948.0, "948 s"),
        (999.4, "999 s"),
        (999.6, "16 min 40 s"),
        (1000.0, "16 min 40 s"),
        (3599.6, "1 h 00 min"),
        (3600.0, "1 h 00 min"),
        (7384.0, "2 h 03 min"),
        (-1000.0, "-16 min 40 s"),
        (-0.002, "-2.00 ms"),
        (float("inf"), "inf s"),
    ],
)
def test_seconds_for_people(value_s: float, text: str) -> None:
    assert format_seconds(value_s) == text


@given(st.floats(min_value=1e-8, max_value=999))
def test_below_a_thousand_seconds_the_text_reads_back_to_three_digits(value_s: float) -> None:
    assert parse_quantity(format_seconds(value_s), SECONDS) == pytest.approx(value_s, rel=6e-3)


@given(st.floats(min_value=0, max_value=1e7))
def test_no_duration_is_written_with_an_exponent(value_s: float) -> None:
    assert "e" not in format_seconds(value_s) or value_s < 1e-9


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "—"),
        (0.5, "s", "500 ms"),
        (9.4e9, "b/s", "9.4 Gb/s"),
        (940.0, "Mb/s", "940 Mb/s"),
        (0.0, "b/s", "0 b/s"),
        (1500.0, "W", "1.5 kW"),
        (-3.25, "dBm", "-3.25 dBm"),
        (3.0, "", "3"),
    ],
)
def test_values_for_people(value: float | None, unit: str, text: str) -> None:
    assert format_value(value, unit) == text
