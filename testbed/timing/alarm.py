"""A wait for an instant or for a call, whichever comes first, at little cost in virtual time.

Simulated devices and programs wait for little else, hundreds of times in a trial. trio's way
is a cancel scope with a deadline; under :class:`~testbed.timing.clock.JumpingClock` an
:class:`Alarm` is an entry in the clock's own queue instead, which costs less than half. In
real time it *is* a cancel scope.
"""

from __future__ import annotations

import math

import trio

from testbed.timing.clock import JumpingClock, jumping_clock, now_s


class Alarm:
    """Lets one task wait; others may ring, or bring the instant forward. Can be used again."""

    __slots__ = ("_clock", "_due_s", "_entry", "_rung", "_scope", "_task")

    def __init__(self) -> None:
        self._due_s = 0.0
        self._rung = False
        self._task: trio.lowlevel.Task | None = None
        self._clock: JumpingClock | None = None
        self._entry: list[object] | None = None
        self._scope: trio.CancelScope | None = None

    async def wait(self, until_s: float) -> bool:
        """Wait until ``until_s`` on :func:`~testbed.timing.clock.now_s`; true when it was rung
        before. ``math.inf`` waits for the ring alone."""
        self._rung = False
        clock = self._clock = jumping_clock()
        if until_s <= (now_s() if clock is None else clock.time_s):
            await trio.lowlevel.checkpoint()
            return False
        self._due_s = until_s
        if clock is not None:
            self._task = trio.lowlevel.current_task()
            if until_s < math.inf:  # nothing would ever take an entry at infinity out again
                self._entry = clock.call_at(until_s, self._wake)
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        else:
            with trio.CancelScope(deadline=until_s) as self._scope:
                try:
                    await trio.sleep_forever()
                finally:
                    self._scope = None
        return self._rung

    def ring(self) -> None:
        """Wake the waiting task, if there is one."""
        if self._task is not None or self._scope is not None:
            self._rung = True
            self._wake()

    def bring_forward(self, due_s: float) -> None:
        """Have the wait end at ``due_s``, if that is earlier than now agreed."""
        if due_s >= self._due_s:
            return
        if self._scope is not None:
            self._due_s = self._scope.deadline = due_s
        elif self._task is not None and self._clock is not None:
            self._due_s = due_s
            if self._entry is not None:
                self._entry[-1] = None
            self._entry = self._clock.call_at(due_s, self._wake)

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._forget()
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
        elif self._task is not None:
            task = self._task
            self._forget()
            trio.lowlevel.reschedule(task)

    def _forget(self) -> None:
        self._task = None
        if self._entry is not None:
            self._entry[-1] = None
            self._entry = None


async def sleep(seconds: float) -> None:
    """As ``trio.sleep``, at the cost of an :class:`Alarm`."""
    await Alarm().wait(now_s() + seconds)
