"""Callbacks at instants of the simulated world, all driven by one task.

A change of light, a boot or a relay is one entry here and one wake-up when it is due; nothing
polls, which keeps virtual time cheap.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from testbed.timing.alarm import Alarm
from testbed.timing.clock import now_s


class Timer:
    """A callback that is due at an instant, unless it is cancelled before."""

    __slots__ = ("call", "due_s")

    def __init__(self, due_s: float, call: Callable[[], None]) -> None:
        self.due_s = due_s
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Forget the callback. Cancelling twice, or after it was due, does nothing."""
        self.call = None


class Timers:
    """A queue of timers; equal instants run in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._alarm = Alarm()

    def after(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Have ``call()`` called in ``delay_s`` seconds."""
        timer = Timer(now_s() + delay_s, call)
        heapq.heappush(self._heap, (timer.due_s, next(self._order), timer))
        self._alarm.bring_forward(timer.due_s)
        return timer

    async def run(self) -> None:
        """Call what is due, until cancelled."""
        heap = self._heap
        while True:
            now = now_s()
            while heap and (heap[0][0] <= now or heap[0][2].call is None):
                call = heapq.heappop(heap)[2].call
                if call is not None:
                    call()
            await self._alarm.wait(heap[0][0] if heap else math.inf)
