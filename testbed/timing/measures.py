"""Measures: durations from one mark of a trial to another.

Marks carry the run's monotonic time, so a step of the wall clock cannot reach a duration.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.timing.marks import Mark, Timeline


@dataclass(frozen=True, slots=True)
class MeasuredDuration:
    """A duration between two marks, in seconds.

    :param error_s: bound of its error: the sum of the bounds of both marks; zero when both were
        taken on the controller's own clock.
    """

    value_s: float
    error_s: float


def measure_duration(timeline: Timeline, start: str, end: str) -> MeasuredDuration | None:
    """From the first mark ``start`` of this trial to the first mark ``end`` after it.

    ``None`` when either is missing: an ``end`` from before ``start`` is no answer, and a
    duration is never negative. Between marks of different hosts the order is known only within
    the bounds of their clock offsets: when no ``end`` follows, one that lies within them counts
    as simultaneous. Marks of one clock keep their order, whatever their bounds.
    """
    first = timeline.find(start)
    if first is None:
        return None
    last = timeline.find(end, after_s=first.t_s) or _simultaneous(timeline, first, end)
    if last is None:
        return None
    return MeasuredDuration(max(0.0, last.t_s - first.t_s), first.error_s + last.error_s)


def _simultaneous(timeline: Timeline, first: Mark, end: str) -> Mark | None:
    candidates = [
        mark
        for mark in timeline.marks
        if mark.name == end
        and mark.source != first.source
        and mark.t_s >= first.t_s - (mark.error_s + first.error_s)
    ]
    return max(candidates, key=lambda mark: mark.t_s, default=None)


def duration_s(timeline: Timeline, start: str, end: str) -> float | None:
    """The duration alone, in seconds; see :func:`measure_duration`."""
    measured = measure_duration(timeline, start, end)
    return None if measured is None else measured.value_s
