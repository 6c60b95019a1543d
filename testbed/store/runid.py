"""Names of runs: sortable by time, unique, and readable."""

from __future__ import annotations

import re
import secrets
import string

from testbed.timing.clock import WallAnchor

_DIGITS = string.digits + string.ascii_lowercase
_NAME_LENGTH = 40


def new_run_id(playbook_name: str) -> str:
    """A new name, as ``20261201-122641-a3f9x2-lumion-failover``.

    Date and time are UTC; four of the six characters after them are the microsecond and two are
    random, so that names sort by time and two controllers that start together differ.
    """
    wall = WallAnchor.take().wall
    fraction = _base36(wall.microsecond, 4) + _base36(secrets.randbelow(36**2), 2)
    name = re.sub(r"[^a-z0-9]+", "-", playbook_name.lower())[:_NAME_LENGTH].strip("-")
    return f"{wall:%Y%m%d-%H%M%S}-{fraction}" + (f"-{name}" if name else "")


def _base36(number: int, width: int) -> str:
    digits = ""
    for _ in range(width):
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits
