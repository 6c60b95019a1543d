"""Quantities as people write them (``100 ms``, ``10 Gb/s``), held in SI units inside.

Bare numbers are accepted where the unit is SI already: ``1.5`` is 1.5 s.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
BITS_PER_SECOND = {"b/s": 1.0, "kb/s": 1e3, "Mb/s": 1e6, "Gb/s": 1e9, "Tb/s": 1e12}
BYTES = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
WATTS = {"mW": 1e-3, "W": 1.0, "kW": 1e3}
DECIBELS = {"dB": 1.0, "dBm": 1.0}

_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-zµ/]*)")


def parse_quantity(text: Any, units: dict[str, float] | dict[str, int]) -> float:
    """Read a number or ``<number> <unit>``; returns SI.

    :raises ValueError: with what is allowed, when the text is no such quantity.
    """
    if isinstance(text, bool):
        raise ValueError(f"{text!r} is no quantity; write a number with one of {', '.join(units)}")
    if isinstance(text, int | float):
        if not math.isfinite(text):
            raise ValueError("a quantity must be finite")
        return float(text)
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None or (match[2] and match[2] not in units):
        raise ValueError(f"{text!r} is no quantity; write a number with one of {', '.join(units)}")
    return float(match[1]) * (units[match[2]] if match[2] else 1.0)


def _non_negative(units: dict[str, float] | dict[str, int]) -> BeforeValidator:
    def read(value: Any) -> float:
        number = parse_quantity(value, units)
        if number < 0:
            raise ValueError(f"{value!r} must not be negative")
        return number

    return BeforeValidator(read)


def _schema(example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": ["number", "string"], "examples": [example]})


Seconds = Annotated[float, _non_negative(SECONDS), _schema("100 ms")]
BitsPerSecond = Annotated[float, _non_negative(BITS_PER_SECOND), _schema("10 Gb/s")]
SizeBytes = Annotated[float, _non_negative(BYTES), _schema("512 MB")]
Watts = Annotated[float, _non_negative(WATTS), _schema("350 W")]
Decibels = Annotated[
    float, BeforeValidator(lambda value: parse_quantity(value, DECIBELS)), _schema("3 dB")
]


def format_seconds(value_s: float) -> str:
    """A duration for people: three significant digits and the unit that fits.

    From 1000 s on it is given as minutes and seconds, or hours and minutes: ``16 min 40 s``.
    """
    magnitude = abs(value_s)
    if not math.isfinite(value_s):
        return f"{value_s} s"
    if magnitude == 0:
        return "0 s"
    if magnitude >= 999.5:
        return ("-" if value_s < 0 else "") + _hours_and_minutes(magnitude)
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if magnitude >= scale * 0.9995:
            return f"{value_s / scale:#.3g}".rstrip(".") + f" {unit}"
    return f"{value_s / 1e-9:.3g} ns"


def _hours_and_minutes(magnitude_s: float) -> str:
    minutes, seconds = divmod(round(magnitude_s), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(round(magnitude_s / 60), 60)
    return f"{hours} h {minutes:02d} min"


def format_value(value: float | None, unit: str) -> str:
    """A value in its unit, for people; a dash for one that could not be taken."""
    if value is None:
        return "—"
    if unit == "s":
        return format_seconds(value)
    for units in (BITS_PER_SECOND, WATTS):
        if unit in units and math.isfinite(value):
            return _scaled(value * units[unit], units)
    return f"{value:.4g} {unit}".rstrip()


def _scaled(value: float, units: dict[str, float]) -> str:
    """The value with the greatest of the units that it is at least one of."""
    fitting = [name for name, scale in units.items() if abs(value) >= scale * 0.9995]
    unit = fitting[-1] if fitting else next(name for name, scale in units.items() if scale == 1.0)
    return f"{value / units[unit]:.4g} {unit}"
