"""What all simulated devices share: opening, operations with their faults, and injection."""

from __future__ import annotations

import abc
import difflib
from collections.abc import Callable, Mapping
from typing import TypeVar

import trio

from devices.mock.faults import CONDITIONS, FaultBox, Hook
from devices.mock.world import World
from testbed.errors import DeviceLost, DeviceRefused, ProtocolError
from testbed.hal.registry import DriverContext
from testbed.hal.types import Backend, FaultSpec, Identity
from testbed.timing.alarm import sleep
from testbed.timing.distribution import Distribution

Result = TypeVar("Result")

SLOW_FACTOR = 10.0
LATE_S = 5.0


class MockDevice(abc.ABC):
    """Base of the twins.

    :ivar world: what this device shares with the others of its rack.
    :ivar faults: conditions that its operations meet.
    """

    KINDS: Mapping[str, str] = {}
    """Events of this kind of device, beyond :data:`devices.mock.faults.CONDITIONS`."""

    def __init__(self, name: str, context: DriverContext, command: Distribution) -> None:
        self._name = name
        self.world = World.of(context)
        self.rng = context.rng(name)
        self.faults = FaultBox(context.rng(f"{name}/faults"))
        self._command = command
        self._pending: list[Callable[[], None]] = []
        self._repairs: dict[str, Callable[[], None]] = {}
        self._opened = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def backend(self) -> Backend:
        return Backend.MOCK

    @abc.abstractmethod
    def identity(self) -> Identity:
        """What the device says it is."""

    async def reachable(self) -> None:
        """Wait until the device can be talked to; one that is cut off waits for ever."""
        return

    async def open(self) -> Identity:
        if not self._opened:
            await self.world.acquire()
            self._opened = True
        return await self.exchange("open", self.identity)

    async def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        try:
            if not self.faults.idle:
                await self.faults.call_hooks("close", changes=False)
                fault = self.faults.meet("close", changes=False)
                if fault is not None and fault.operation == "close":
                    await self._suffer(fault, "close", 0.0, lambda: None, None, None)
        finally:
            await self.world.release()

    # --- operations ------------------------------------------------------------------------

    async def exchange(
        self,
        operation: str,
        act: Callable[[], Result],
        *,
        half: Callable[[], Result] | None = None,
        lie: Callable[[], Result] | None = None,
    ) -> Result:
        """One command or query: the way to the device, and what it does there.

        :param act: what the device does, at the instant at which the command has arrived.
        :param half: the first half of that, for an operation that changes something.
        :param lie: to pretend that it was done.
        """
        await self.reachable()
        self.world.operation_begins(self._name, operation)
        delay_s = self._command.draw_s(self.rng)
        if not self.faults.idle:
            changes = half is not None or lie is not None
            await self.faults.call_hooks(operation, changes=changes)
            fault = self.faults.meet(operation, changes=changes)
            if fault is not None:
                return await self._suffer(fault, operation, delay_s, act, half, lie)
        await sleep(delay_s)
        await self.reachable()
        return act()

    async def _suffer(
        self,
        fault: FaultSpec,
        operation: str,
        delay_s: float,
        act: Callable[[], Result],
        half: Callable[[], Result] | None,
        lie: Callable[[], Result] | None,
    ) -> Result:
        params = fault.params
        done_anyway = params.get("at") == "receive"
        name = self._name
        match fault.kind:
            case "slow":
                extra_s = float(params.get("delay_s", 0.0))
                await sleep(delay_s * float(params.get("factor", SLOW_FACTOR)) + extra_s)
                return act()
            case "refuse":
                await sleep(delay_s)
                raise DeviceRefused(
                    f"{self._name} refused {operation}", device=name, operation=operation
                )
            case "silent":
                await sleep(delay_s)
                if done_anyway:
                    act()
                await trio.sleep_forever()
            case "late":
                await sleep(delay_s)
                result = act()
                await sleep(float(params.get("delay_s", LATE_S)))
                return result
            case "garbage":
                await sleep(delay_s)
                if done_anyway:
                    act()
                answer = self.faults.garbage()
                raise ProtocolError(
                    f"{self._name} answered {operation} with {answer!r}",
                    device=name,
                    operation=operation,
                    answer=answer,
                )
            case "drop":
                await sleep(delay_s)
                if done_anyway:
                    act()
                elif half is not None and params.get("at") != "send":
                    half()
                raise DeviceLost(
                    f"{self._name} dropped the connection at {operation}",
                    device=name,
                    operation=operation,
                )
            case "unreachable":
                await sleep(delay_s)
                raise DeviceLost(
                    f"{self._name} cannot be reached: no route to host",
                    device=name,
                    operation=operation,
                    remedy="look at its management network and its power",
                )
            case "partial" if half is not None:
                await sleep(delay_s)
                return half()
            case "lie" if lie is not None:
                await sleep(delay_s)
                return lie()
        # A condition that means nothing at this operation: a query cannot be done by half.
        await sleep(delay_s)
        return act()

    # --- FaultInjectable -------------------------------------------------------------------

    def fault_kinds(self) -> Mapping[str, str]:
        """All kinds that can be injected here, with what they do."""
        return {**CONDITIONS, **self.KINDS}

    async def inject(self, fault: FaultSpec) -> None:
        """Inject a fault now; or, by its ``params``, ``after_s`` seconds later, or ``on`` the
        next start of an operation (``apply``, or ``ocs.apply`` of one device), or both.

        :raises DeviceRefused: for a fault that this device, as it is, cannot have.
        """
        await trio.lowlevel.checkpoint()
        kinds = self.fault_kinds()
        if fault.kind not in kinds:
            close = difflib.get_close_matches(fault.kind, kinds, n=1)
            raise self.no_fault(
                f"there is no fault {fault.kind!r} here"
                + (f"; did you mean {close[0]!r}?" if close else ""),
                remedy=f"its kinds are {', '.join(sorted(kinds))}",
            )
        happen = self._arming(fault) if fault.kind in CONDITIONS else self.event(fault)
        after_s = fault.params.get("after_s")
        trigger = fault.params.get("on")
        if after_s is not None:
            happen = self._delayed(happen, float(after_s))
        if trigger is not None:
            self._pending.append(self.world.on_operation(str(trigger), happen))
        else:
            happen()

    def _arming(self, fault: FaultSpec) -> Callable[[], None]:
        return lambda: self.faults.arm(fault)

    def _delayed(self, happen: Callable[[], None], after_s: float) -> Callable[[], None]:
        def later() -> None:
            self._pending.append(self.world.timers.after(after_s, happen).cancel)

        return later

    async def clear_faults(self) -> None:
        """Mend everything that was injected, and forget what was still to come."""
        await trio.lowlevel.checkpoint()
        for forget in self._pending:
            forget()
        self._pending.clear()
        self.faults.clear()
        repairs = tuple(self._repairs.values())
        self._repairs.clear()
        for repair in reversed(repairs):
            repair()

    def event(self, fault: FaultSpec) -> Callable[[], None]:
        """Check an event and return what makes it happen. :raises DeviceRefused: if it cannot."""
        raise self.no_fault(f"{fault.kind} is not possible here")

    def repair_by(self, key: str, repair: Callable[[], None]) -> None:
        """Have ``repair()`` called when faults are cleared; one repair for each key."""
        self._repairs.setdefault(key, repair)

    def no_fault(self, why: str, *, remedy: str | None = None) -> DeviceRefused:
        """The error for a fault that cannot be injected."""
        return DeviceRefused(
            f"{self._name}: {why}", device=self._name, operation="inject", remedy=remedy
        )

    def hook(self, operation: str, call: Hook) -> Callable[[], None]:
        """For tests: call a function, or a coroutine function, before each such operation."""
        return self.faults.hook(operation, call)
