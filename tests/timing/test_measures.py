"""Durations from mark to mark."""

import time

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from testbed.timing.clock import run
from testbed.timing.marks import Timeline
from testbed.timing.measures import duration_s, measure_duration


def timeline() -> Timeline:
    return Timeline(lambda event: None, origin_s=0.0)


def test_a_step_of_the_wall_clock_cannot_reach_a_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC62, TC67: the wall clock goes back an hour between two marks."""

    async def main() -> float | None:
        marks = Timeline(lambda event: None)
        marks.mark("fault.injected")
        wall = time.time
        monkeypatch.setattr(time, "time", lambda: wall() - 3600)
        await trio.sleep(2)
        marks.mark("job.first-good-step")
        return duration_s(marks, "fault.injected", "job.first-good-step")

    assert run(main, virtual=True) == 2.0


def test_the_first_end_after_the_first_start_counts() -> None:
    marks = timeline()
    for name, at_s in (("end", 0.5), ("start", 1.0), ("end", 4.0), ("start", 3.0), ("end", 2.5)):
        marks.mark(name, at_s=at_s)
    assert duration_s(marks, "start", "end") == 1.5


@pytest.mark.parametrize("present", [(), ("start",), ("end",)])
def test_without_both_marks_there_is_no_duration(present: tuple[str, ...]) -> None:
    marks = timeline()
    for name in present:
        marks.mark(name, at_s=1.0)
    assert duration_s(marks, "start", "end") is None


def test_an_end_before_the_start_is_no_answer() -> None:
    marks = timeline()
    marks.mark("start", at_s=2.0)
    marks.mark("end", at_s=1.0)
    assert duration_s(marks, "start", "end") is None


def test_a_remote_mark_early_by_less_than_its_bound_is_simultaneous() -> None:
    """TC87: marks of two hosts are compared within the bounds of their clock offsets."""
    marks = timeline()
    marks.mark("start", at_s=2.0)
    marks.mark("end", at_s=1.9995, error_s=0.001, source="host1")
    measured = measure_duration(marks, "start", "end")
    assert measured is not None
    assert (measured.value_s, measured.error_s) == (0.0, 0.001)


def test_marks_of_one_clock_keep_their_order_whatever_their_bounds() -> None:
    """The wiring before a fault is no answer to it, even when the fault came within 5 s."""
    marks = timeline()
    marks.mark("fabric.verified", at_s=1.0)
    marks.mark("fault.injected", at_s=1.1, error_s=5.0)
    assert duration_s(marks, "fault.injected", "fabric.verified") is None
    marks.mark("fabric.verified", at_s=9.1)
    assert duration_s(marks, "fault.injected", "fabric.verified") == 8.0


@given(
    st.lists(
        st.tuples(st.sampled_from(["start", "end"]), st.floats(0, 1e6), st.floats(0, 1.0)),
        max_size=12,
    )
)
def test_a_duration_is_never_negative(
    entries: list[tuple[str, float, float]],
) -> None:
    marks = timeline()
    for name, at_s, error_s in entries:
        marks.mark(name, at_s=at_s, error_s=error_s)
    duration = duration_s(marks, "start", "end")
    assert duration is None or duration >= 0.0
