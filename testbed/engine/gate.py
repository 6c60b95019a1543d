"""The way to one device: what every operation passes, whatever the capability.

* it has a deadline, by its name: :data:`~testbed.hal.deadlines.OPERATION_DEADLINES_S`, or the
  rack file's own;
* before it changes anything, the lease is checked and the intent is in the journal;
* after it has failed or was cut off, the state of the device is *unknown* until a reading
  succeeds;
* changes, failures and whatever takes long are events; quick readings are not, for there are
  many and they say nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import trio

from testbed.errors import DeviceError, DeviceRefused, DeviceTimeout, InternalError, TestbedError
from testbed.hal.capabilities import Device
from testbed.hal.deadlines import OPERATION_DEADLINES_S
from testbed.hal.types import Identity
from testbed.rack.journal import Before, Journal
from testbed.store import events
from testbed.timing.clock import now_s
from testbed.timing.marks import Timeline
from testbed.timing.quantity import format_seconds

SLOW_READING_S = 1.0
"""A reading that takes longer is an event, in seconds."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Known:
    """What is known of a device.

    :ivar state: in words, as of the last reading or change that succeeded.
    :ivar doubtful: true after an operation has failed or was cut off, until a reading.
    :ivar parts: last reading of each part (``circuits``, ``outlets``, ...).
    """

    state: str | None = None
    doubtful: bool = False
    parts: dict[str, Any] = field(default_factory=dict)

    def saw(self, part: str, value: Any, words: str) -> None:
        """Take over a reading."""
        self.parts[part] = value
        self.state = words
        self.doubtful = False

    def lost(self) -> None:
        """Nothing is certain any more."""
        self.doubtful = True
        self.parts.clear()

    def in_words(self) -> str | None:
        """The state for an error message."""
        if self.state is None or not self.doubtful:
            return self.state
        return f"unknown; before: {self.state}"


@dataclass
class Doors:
    """What the gates of one session share.

    :ivar check_lease: raises when the lease is lost.
    :ivar deadlines_s: deadlines of the rack file, by operation.
    :ivar cut_off: the operation that was cancelled last: device, operation, instant. Says what
        a task was waiting for when its own deadline passed.
    """

    timeline: Timeline
    journal: Journal
    check_lease: Callable[[], None]
    deadlines_s: Mapping[str, float] = field(default_factory=dict)
    cut_off: tuple[str, str, float] | None = None

    def deadline_s(self, operation: str) -> float:
        """Deadline of an operation in seconds."""
        given = self.deadlines_s.get(operation)
        return OPERATION_DEADLINES_S[operation] if given is None else given


class Gate:
    """The way to one device. Opens it at the first use, unless that was done before."""

    def __init__(self, device: Device, doors: Doors) -> None:
        self.device = device
        self.doors = doors
        self.known = Known()
        self.identity: Identity | None = None
        self._opening = trio.Lock()
        self._begun = False

    async def open(self) -> Identity:
        """Connect, if that has not been done."""
        if self.identity is None:
            async with self._opening:
                if self.identity is None:
                    self._begun = True
                    self.identity = await self._pass("open", False, self.device.open)
                    self.known.state = f"connected: {self.identity.vendor} {self.identity.model}"
        return self.identity

    async def close(self) -> None:
        """Disconnect, also from a device that could be connected to by half only.

        :raises DeviceError: when that fails; the device is closed for us then.
        """
        if self._begun:
            self._begun = False
            self.identity = None
            await self._pass("close", False, self.device.close)

    async def read(
        self, operation: str, call: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """An operation that changes nothing."""
        if self.identity is None:
            await self.open()
        return await self._pass(operation, False, call, *args, **kwargs)

    async def change(
        self,
        operation: str,
        before: Before,
        call: Callable[P, Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """An operation that changes something.

        :param before: what was there, as far as the journal lacks it.
        """
        if self.identity is None:
            await self.open()
        self.doors.check_lease()
        self.doors.journal.intend(self.device.name, operation, before)
        return await self._pass(operation, True, call, *args, **kwargs)

    def journal_lacks(self, part: str, key: str | None = None) -> bool:
        """Whether the journal does not know yet how a part was before this run."""
        changes = self.doors.journal.changes.get(self.device.name)
        if changes is None or part not in changes.before:
            return True
        return key is not None and key not in changes.before[part]

    async def _pass(
        self,
        operation: str,
        changes: bool,
        call: Callable[P, Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        start_s = now_s()
        deadline_s = self.doors.deadline_s(operation)
        try:
            with trio.CancelScope(deadline=start_s + deadline_s) as scope:
                result = await call(*args, **kwargs)
            if scope.cancelled_caught:
                raise self._too_late(operation, deadline_s, now_s() - start_s)
        except DeviceError as error:
            self._complete(error, operation, deadline_s, start_s)
            if not isinstance(error, DeviceRefused):
                self.known.lost()
            self._event(operation, start_s, "failed", error)
            raise
        except trio.Cancelled:
            self.known.lost()
            self.doors.cut_off = (self.device.name, operation, now_s())
            self._event(operation, start_s, "cancelled")
            raise
        except TestbedError:
            raise
        except Exception as error:
            self.known.lost()
            self._event(operation, start_s, "failed")
            raise InternalError(
                f"the driver of {self.device.name} broke at {operation}: "
                f"{type(error).__name__}: {error}",
                device=self.device.name,
                operation=operation,
            ) from error
        if changes or now_s() - start_s >= SLOW_READING_S:
            self._event(operation, start_s, "ok")
        return result

    def _too_late(self, operation: str, deadline_s: float, elapsed_s: float) -> DeviceTimeout:
        state = self.known.in_words()
        return DeviceTimeout(
            f"{self.device.name} did not finish {operation} within {format_seconds(deadline_s)} "
            f"(elapsed: {format_seconds(elapsed_s)}; last known state: {state or 'none'})",
            device=self.device.name,
            operation=operation,
            deadline_s=deadline_s,
            elapsed_s=elapsed_s,
            last_state=state,
            remedy=f"look whether {self.device.name} is alive; if it is only slow, raise "
            f"deadlines.{operation} in the rack file",
        )

    def _complete(
        self, error: DeviceError, operation: str, deadline_s: float, start_s: float
    ) -> None:
        """Fill in what the driver could not know."""
        for name, value in (
            ("operation", operation),
            ("deadline_s", deadline_s),
            ("elapsed_s", now_s() - start_s),
            ("last_state", self.known.in_words()),
        ):
            if getattr(error, name) is None and value is not None:
                setattr(error, name, value)
                error.fields[name] = value

    def _event(
        self, operation: str, start_s: float, status: str, error: DeviceError | None = None
    ) -> None:
        extra: dict[str, Any] = {} if error is None else {"error": error.as_record()}
        self.doors.timeline.event(
            events.DEVICE,
            device=self.device.name,
            operation=operation,
            elapsed_s=round(now_s() - start_s, 9),
            status=status,
            **extra,
        )
