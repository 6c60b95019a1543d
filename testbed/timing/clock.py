"""The one clock. Nothing outside :mod:`testbed.timing` reads a clock.

Durations come from the monotonic clock; wall time is one anchor a run. Virtual
time is an autojump clock: the same engine, tasks and cleanup run, and the
clock jumps to the next deadline whenever every task waits.
"""

from __future__ import annotations

import datetime
import heapq
import itertools
import math
import random
import threading
import time
from collections.abc import Awaitable, Callable, MutableSequence
from dataclasses import dataclass
from typing import Any, TypeVar, TypeVarTuple

import trio

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


class MonotonicClock(trio.abc.Clock):
    """trio's time on the same scale as :func:`now_s` in a worker thread."""

    def start_clock(self) -> None:
        """Nothing to start: the clock of the operating system runs already."""

    def current_time(self) -> float:
        return time.perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()


class JumpingClock(trio.abc.Clock):
    """Virtual time: when every task waits, time jumps to the next deadline.

    The same as trio's autojump ``MockClock``, at half the cost. That one lets the loop go idle
    once before each jump; this one jumps as soon as the loop, having nothing to run, asks how
    long it may sleep. ``wait_all_tasks_blocked`` does not work under it.

    :ivar time_s: the time now, in seconds.
    """

    def __init__(self) -> None:
        self.time_s = 0.0
        self._calls: list[list[Any]] = []  # heap of [instant, order, call or None]
        self._order = itertools.count()

    def call_at(self, at_s: float, call: Callable[[], None]) -> list[Any]:
        """Have ``call()`` called by the loop at that instant, before tasks run then. Setting
        the last item of what is returned to ``None`` takes it back."""
        entry = [at_s, next(self._order), call]
        heapq.heappush(self._calls, entry)
        return entry

    def start_clock(self) -> None:
        """Nothing to start: time passes by jumps only."""

    def current_time(self) -> float:
        return self.time_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        calls = self._calls
        while calls and calls[0][-1] is None:
            heapq.heappop(calls)
        if calls and calls[0][0] < deadline:
            now = self.time_s = max(self.time_s, calls[0][0])
            while calls and calls[0][0] <= now:
                call = heapq.heappop(calls)[-1]
                if call is not None:
                    call()
            return 0.0
        if deadline == math.inf:
            return math.inf  # nothing will happen by itself; wait for a signal
        if deadline > self.time_s:
            self.time_s = deadline
        return 0.0


class _Loop(threading.local):
    """What this thread's event loop runs on; a worker thread has none of its own."""

    clock: JumpingClock | None = None


_loop = _Loop()


def jumping_clock() -> JumpingClock | None:
    """The clock of virtual time, in a task of a loop that runs in it; else ``None``."""
    return _loop.clock


def now_s() -> float:
    """Monotonic time in seconds; its origin has no meaning. Works in worker threads too."""
    clock = _loop.clock
    if clock is not None:  # asked a thousand times in a trial: the short way
        return clock.time_s
    try:
        return trio.current_time()
    except RuntimeError:
        return time.perf_counter()


def machine_s() -> float:
    """Monotonic time of the machine, in virtual time too: for pacing a display, never for a
    result."""
    return time.perf_counter()


@dataclass(frozen=True, slots=True)
class WallAnchor:
    """One reading of both clocks, to place a run in the calendar.

    :param wall: UTC time of the anchor.
    :param monotonic_s: :func:`now_s` at that moment.
    """

    wall: datetime.datetime
    monotonic_s: float

    @classmethod
    def take(cls) -> WallAnchor:
        return cls(wall=datetime.datetime.now(datetime.UTC), monotonic_s=now_s())


def is_virtual() -> bool:
    """Whether the running event loop is in virtual time."""
    return _loop.clock is not None


class _Shuffler(random.Random):
    """Shuffles as its base does; most batches are one task, which has one order."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        if len(x) > 1:
            super().shuffle(x)


def run(
    main: Callable[[*Args], Awaitable[Result]],
    *args: *Args,
    virtual: bool = False,
    seed: int = 0,
) -> Result:
    """Run ``main`` in a fresh event loop, in real or in virtual time.

    In virtual time the scheduler itself is made deterministic, so that one seed gives
    one order of events: trio shuffles the tasks of a batch on purpose otherwise.
    """
    if not virtual:
        return trio.run(main, *args, clock=MonotonicClock())
    # The switch that hypothesis-trio uses too; trio exports no public one.
    core: Any = trio._core._run
    before = core._ALLOW_DETERMINISTIC_SCHEDULING, core._r
    core._ALLOW_DETERMINISTIC_SCHEDULING, core._r = True, _Shuffler(seed)
    _loop.clock = clock = JumpingClock()
    try:
        return trio.run(main, *args, clock=clock)
    finally:
        _loop.clock = None
        core._ALLOW_DETERMINISTIC_SCHEDULING, core._r = before
