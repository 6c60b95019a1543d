"""The one adapter between blocking driver code and the event loop.

A lab writes a driver as a plain synchronous class; :class:`ThreadedSession` runs it. The classes
in :mod:`testbed.hal.sync` make devices out of it. What it promises:

* **One thread a session.** A session is one driver object, made when the device is opened, and
  one thread in which all of its methods but ``abort`` are called, one after the other.
* **Deadlines.** An operation ends at the deadline of the surrounding cancel scope or at its own,
  whichever is earlier, with a :class:`~testbed.errors.DeviceTimeout`; a cancellation for another
  reason stays a cancellation.
* **No late reply.** After a timeout, a cancellation or a broken exchange nobody knows where in
  the conversation the device is. So the session is torn down: ``abort`` is called from another
  thread, which makes the blocked call fail, and the object is never used again. The next
  operation opens a fresh one. A thread that lags behind can only touch its own dead session.
* **Threads come back.** A torn-down session has ``grace_s`` to end its thread, which is also
  the most that a deadline is overrun (twice that if ``abort`` blocks). A thread that does not
  end is abandoned, counted and named; when it ends later, it closes its connection and is
  counted out. With ``MAX_ABANDONED`` of them no further session is opened.

Exceptions of a driver become ours as :func:`testbed.hal.translate.translate` says. After
``DeviceRefused`` and ``StateMismatch`` the session stays open, for the device has answered in
order; after all others it is torn down.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import trio

from testbed.errors import (
    DeviceLost,
    DeviceRefused,
    DeviceTimeout,
    InternalError,
    StateMismatch,
    TestbedError,
)
from testbed.hal.translate import translate
from testbed.hal.types import Identity
from testbed.timing.clock import is_virtual, now_s
from testbed.timing.quantity import format_seconds

GRACE_S = 1.0
MAX_ABANDONED = 8

Result = TypeVar("Result")


class SyncDevice(Protocol):
    """What every synchronous driver has.

    ``open`` connects and identifies; it is called once in the life of an object. ``close`` is
    called last, also after ``abort`` and after an ``open`` that failed. ``abort`` is called from
    another thread while a method may be blocked: it must make that method fail soon, as by
    shutting its socket down, and must not block.
    """

    def open(self) -> Identity: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


Driver = TypeVar("Driver", bound=SyncDevice)


class _Job:
    """One call in a worker thread, and its outcome."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._token = trio.lowlevel.current_trio_token()
        self.finished = trio.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.finished.set)


class _Worker(Generic[Driver]):
    """The thread of one session, and the driver object that only it uses."""

    def __init__(self, name: str, driver: Driver, ended: Callable[[], None]) -> None:
        self.driver = driver
        self._ended = ended
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        # A daemon, so that a thread which nobody can end does not keep the process alive.
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self.thread.start()

    def submit(self, call: Callable[[], Any]) -> _Job:
        job = _Job(call)
        self._jobs.put(job)
        return job

    def stop(self) -> _Job:
        """Have the thread close the driver after what it is doing, and end."""
        closing = self.submit(self.driver.close)
        self._jobs.put(None)
        return closing

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
        self._ended()


class ThreadedSession(Generic[Driver]):
    """Calls of a synchronous driver from the event loop; see the module for what it promises.

    :param device: name of the device, for errors and threads.
    :param make: makes a driver object; it must not connect yet.
    :param deadline_s: of an operation, where the caller gives none, in seconds; ``None`` =
        only that of the surrounding scope.
    :param grace_s: time for a torn-down session to end its thread, in seconds.
    """

    _numbers = itertools.count(1)

    def __init__(
        self,
        device: str,
        make: Callable[[], Driver],
        *,
        deadline_s: float | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        self.device = device
        self.identity: Identity | None = None
        self._make = make
        self._deadline_s = deadline_s
        self._grace_s = grace_s
        self._worker: _Worker[Driver] | None = None
        self._abandoned: set[str] = set()
        self._one_at_a_time = trio.Lock()
        self._running: str | None = None
        self._last_answer: tuple[str, float] | None = None

    @property
    def abandoned(self) -> tuple[str, ...]:
        """Names of the threads that have not ended although their session was torn down."""
        return tuple(sorted(self._abandoned))

    async def open(self, *, deadline_s: float | None = None) -> Identity:
        """Connect, unless a session is open; returns what the device says it is."""
        await self.call("open", lambda driver: None, deadline_s=deadline_s)
        if self.identity is None:
            raise InternalError(f"driver of {self.device} has opened without an identity")
        return self.identity

    async def close(self) -> None:
        """Close the session in order, and end its thread. May be called twice."""
        async with self._one_at_a_time:
            if self._worker is not None:
                # Shielded and bounded: a session must not stay behind because of a cancellation.
                await self._discard(abort=False)

    async def call(
        self,
        operation: str,
        function: Callable[[Driver], Result],
        *,
        deadline_s: float | None = None,
        state_of: Callable[[Result], str] = lambda result: "",
    ) -> Result:
        """Run ``function(driver)`` in the thread of the session, which is opened if need be.

        :param operation: its name, for errors.
        :param deadline_s: time for it in seconds, waiting for other operations included.
        :param state_of: the state that a result shows, in a few words, for later errors.
        """
        self._require_real_time(operation)
        start_s = now_s()
        own_s = self._deadline_s if deadline_s is None else deadline_s
        end_s = trio.current_effective_deadline()
        if own_s is not None:
            end_s = min(end_s, start_s + own_s)
        attempt = _Attempt(operation, start_s, end_s)
        try:
            with trio.CancelScope(deadline=end_s):
                async with self._one_at_a_time:
                    self._running = operation
                    try:
                        worker = self._worker or await self._open(attempt)
                        result: Result = await self._in_thread(
                            worker, lambda: function(worker.driver), attempt
                        )
                    finally:
                        self._running = None
                self._last_answer = state_of(result) or f"answered {operation}", now_s()
                return result
        except trio.Cancelled:
            # Deadlines are reported as what they are also when it is a scope further out that
            # has ended: only here is it known what was going on. Anything else is passed on.
            if now_s() < end_s:
                raise
        raise self._timeout(attempt)

    # --- sessions --------------------------------------------------------------------------

    async def _open(self, attempt: _Attempt) -> _Worker[Driver]:
        if len(self._abandoned) >= MAX_ABANDONED:
            raise DeviceLost(
                f"device {self.device}: {len(self._abandoned)} threads hang in its driver; no "
                "further session is opened",
                device=self.device,
                operation=attempt.operation,
                remedy="mend abort() of the driver: it must make a blocked call fail",
                abandoned_threads=list(self.abandoned),
            )
        try:
            driver = self._make()
        except Exception as error:
            raise self._ours(error, "make", attempt) from error
        name = f"testbed-{self.device}-{next(self._numbers)}"
        worker = _Worker(name, driver, lambda: self._abandoned.discard(name))
        self._worker = worker
        try:
            self.identity = await self._in_thread(worker, worker.driver.open, attempt, "open")
        except TestbedError:
            await self._discard(abort=True)  # refused in order, as by a wrong password: not open
            raise
        return worker

    async def _in_thread(
        self,
        worker: _Worker[Driver],
        call: Callable[[], Any],
        attempt: _Attempt,
        operation: str | None = None,
    ) -> Any:
        job = worker.submit(call)
        try:
            await job.finished.wait()
        except trio.Cancelled:
            attempt.sent = True
            attempt.hung = await self._discard(abort=True)
            raise
        if job.error is None:
            return job.result
        error = self._ours(job.error, operation or attempt.operation, attempt)
        if not isinstance(error, DeviceRefused | StateMismatch):
            await self._discard(abort=True)
        raise error from (None if error is job.error else job.error)

    async def _discard(self, *, abort: bool) -> str | None:
        """End the session; returns the name of its thread if that does not end in time."""
        worker, self._worker = self._worker, None
        if worker is None:
            return None
        name = worker.thread.name
        self._abandoned.add(name)  # before it can end: its end takes the name out again
        if abort:
            await self._in_grace(partial(_abort, worker.driver))
        closed = worker.stop()
        ended = await self._in_grace(closed.finished.wait)
        if not ended and not abort:
            await self._in_grace(partial(_abort, worker.driver))
            ended = await self._in_grace(closed.finished.wait)
        if not ended:
            return name
        # How close() ended does not matter: nothing more is expected of this session.
        self._abandoned.discard(name)
        return None

    async def _in_grace(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Whether that ends in the grace time; a cancellation does not cut it short."""
        with trio.CancelScope(shield=True, deadline=now_s() + self._grace_s):
            await work()
            return True
        return False

    # --- errors ----------------------------------------------------------------------------

    def _require_real_time(self, operation: str) -> None:
        if is_virtual():
            raise DeviceRefused(
                f"device {self.device} is not simulated: it cannot run in virtual time",
                device=self.device,
                operation=operation,
                remedy="leave --virtual-time out, or use a rack of mock devices (--rack mock)",
            )

    @property
    def last_state(self) -> str | None:
        """The last that is known of the device, and how old that is."""
        if self._last_answer is None:
            return None
        state, at_s = self._last_answer
        return f"{state}, {format_seconds(now_s() - at_s)} ago"

    def _ours(self, error: BaseException, operation: str, attempt: _Attempt) -> TestbedError:
        return translate(
            error,
            device=self.device,
            operation=operation,
            elapsed_s=now_s() - attempt.start_s,
            last_state=self.last_state,
        )

    def _timeout(self, attempt: _Attempt) -> DeviceTimeout:
        elapsed_s = now_s() - attempt.start_s
        deadline_s = attempt.end_s - attempt.start_s
        if attempt.sent:
            what = "no complete answer, session closed"
        elif self._running:
            what = f"nothing was sent: {self._running} was under way"
        else:
            what = "nothing was sent: the deadline had passed before"
        if attempt.hung:
            what += f"; thread {attempt.hung} hangs and was abandoned"
        return DeviceTimeout(
            f"device {self.device}: {attempt.operation} took longer than its deadline of "
            f"{format_seconds(deadline_s)} ({what}; {format_seconds(elapsed_s)} passed; last "
            f"known: {self.last_state or 'nothing'})",
            device=self.device,
            operation=attempt.operation,
            deadline_s=deadline_s,
            elapsed_s=elapsed_s,
            last_state=self.last_state,
            remedy=f"look whether {self.device} answers at all; its state is unknown until read",
            abandoned_threads=list(self.abandoned) or None,
        )


async def _abort(driver: SyncDevice) -> None:
    """Call ``abort`` without trusting it: it may block, and it may raise."""
    with suppress(Exception):
        await trio.to_thread.run_sync(
            driver.abort, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
        )


class _Attempt:
    """One operation under way: what its error will have to tell."""

    __slots__ = ("end_s", "hung", "operation", "sent", "start_s")

    def __init__(self, operation: str, start_s: float, end_s: float) -> None:
        self.operation = operation
        self.start_s = start_s
        self.end_s = end_s
        self.sent = False
        self.hung: str | None = None
