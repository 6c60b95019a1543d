"""``did you mean`` for everything that has a name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 12


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest known name; empty when none is near."""
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not near:
        lower = {n.lower(): n for n in names}
        near = [lower[name.lower()]] if name.lower() in lower else []
    return f"did you mean {near[0]!r}?" if near else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint: the nearest known name, or what is allowed when none is near."""
    names = sorted(set(known))
    hint = nearest(name, names)
    if hint:
        return hint
    if not names:
        return "there is none"
    shown = ", ".join(names[:_SHOWN])
    return f"allowed: {shown}" + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
