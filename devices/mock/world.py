"""The simulated world of one rack session: light, power, machines, and what joins them.

All mock devices of a session share one world through
:meth:`testbed.hal.registry.DriverContext.shared`; the first device to be opened starts it, the
last to be closed ends it with everything that runs in it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import trio

from devices.mock.electricity import Electricity
from devices.mock.faults import ALIASES
from devices.mock.machine import Machine
from devices.mock.optics import Optics
from devices.mock.state import Section, StateFile
from devices.mock.timers import Timers
from testbed.errors import InternalError
from testbed.hal.registry import DriverContext
from testbed.hal.wiring import Endpoint

Shared = TypeVar("Shared")


class Persistent(Protocol):
    """A part of the world whose state outlives the controller."""

    def snapshot(self) -> Section:
        """Its state as JSON-compatible data."""

    def restore(self, section: Section) -> None:
        """Take over a state. :raises KeyError, TypeError, ValueError: for one that is none."""


class World:
    """Everything that the twins of one rack share.

    :ivar timers: callbacks at instants.
    :ivar optics: where light is.
    :ivar electricity: who has power.
    :ivar machines: the simulated hosts by name.
    :ivar defect: what made the world fail, if anything did.
    """

    def __init__(self, context: DriverContext) -> None:
        self.context = context
        self.wiring = context.wiring
        self.timers = Timers()
        self.optics = Optics(context.wiring, self._light_changed)
        self.electricity = Electricity(context.wiring, self._power_changed)
        self.machines: dict[str, Machine] = {}
        self._parts: dict[str, Persistent] = {}
        self._restored: set[str] = set()
        self._triggers: list[tuple[str, Callable[[], None]]] = []
        self._agreed: dict[str, list[Any]] = {}
        self._power_lot = trio.lowlevel.ParkingLot()
        self.defect: Exception | None = None
        self._users = 0
        self._nursery: trio.Nursery | None = None
        self._started: trio.Event | None = None
        self._ended: trio.Event | None = None
        persistent = context.state_path is not None and not context.virtual
        self._file = StateFile(Path(str(context.state_path))) if persistent else None

    @classmethod
    def of(cls, context: DriverContext) -> World:
        """The world of this session."""
        return context.shared("devices.mock.world", lambda: cls(context))

    # --- life ------------------------------------------------------------------------------

    async def acquire(self) -> None:
        """Be used by one device more; starts the world when it is the first."""
        if self._started is None:
            self._restore()
            self._started, self._ended = trio.Event(), trio.Event()
            # Devices are opened and closed one by one, by tasks that end: the world needs a
            # home that none of them owns. It is left by `release`, or with the event loop.
            trio.lowlevel.spawn_system_task(self._run, name="mock world")
        self._users += 1
        await self._started.wait()

    async def release(self) -> None:
        """Be used by one device less; ends everything when it was the last."""
        self._users -= 1
        if self._users == 0 and self._nursery is not None and self._ended is not None:
            for machine in self.machines.values():
                machine.abandon()
            self._nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await self._ended.wait()

    async def _run(self) -> None:
        started, ended = self._started, self._ended
        assert started is not None and ended is not None  # noqa: S101 - set by acquire
        try:
            async with trio.open_nursery() as self._nursery:
                for machine in self.machines.values():
                    machine.begin()
                self._nursery.start_soon(self.timers.run)
                started.set()
        except Exception as error:  # nobody waits for a system task: the next operation tells
            self.defect = error
        finally:
            started.set()
            self._nursery = self._started = None
            ended.set()

    def start_soon(self, work: Callable[[], Any], *, name: str) -> None:
        """Run something in this world until it ends."""
        if self._nursery is not None:
            self._nursery.start_soon(work, name=name)

    # --- parts -----------------------------------------------------------------------------

    def add_machine(self, machine: Machine) -> None:
        """Put a host into the world."""
        self.machines[machine.name] = machine
        self.optics.add_transmitters(machine.name, machine.transmitted_dbm)
        self.add_part(machine.name, machine)

    def add_part(self, name: str, part: Persistent) -> None:
        """Have the state of a device kept, and restored before the world starts."""
        self._parts[name] = part

    def changed(self, name: str) -> None:
        """Keep the state of a device that has changed."""
        if self._file is not None and self._nursery is not None:
            self._file.put(name, self._parts[name].snapshot())

    def changed_if_known(self, name: str) -> None:
        """The same for a device that may not be part of this session."""
        if name in self._parts:
            self.changed(name)

    def _restore(self) -> None:
        """Take over the state file: controllers and switches before the hosts, which look at
        both."""
        if self._file is None:
            return
        order = sorted(self._parts, key=lambda name: name in self.machines)
        for name in order:
            section = self._file.sections.get(name)
            if section is None or name in self._restored:
                continue
            self._restored.add(name)
            try:
                self._parts[name].restore(section)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise self._file.corrupt(error) from error

    def forget_machine(self, host: str) -> None:
        """A host that is not part of this session has lost power: it will boot when it is met
        again."""
        if self._file is not None and host in self._file.sections:
            self._file.put(host, {"lost-power": True})

    # --- what one part's change means for the others ---------------------------------------

    def _light_changed(self, endpoint: Endpoint) -> None:
        machine = self.machines.get(endpoint.host)
        if machine is not None:
            machine.light_changed(endpoint.interface)

    async def standby(self, host: str) -> None:
        """Return when the feeds of a host give power."""
        while not self.electricity.standby(host):
            await self._power_lot.park()

    def _power_changed(self, host: str) -> None:
        self._power_lot.unpark_all()
        machine = self.machines.get(host)
        powered = self.electricity.powered(host)
        if machine is not None:
            machine.power_changed(powered=powered)
        elif not powered:
            self.forget_machine(host)

    # --- faults that wait for an operation -------------------------------------------------

    def on_operation(self, wanted: str, call: Callable[[], None]) -> Callable[[], None]:
        """Have ``call()`` called once, when an operation begins: ``apply`` at any device, or
        ``ocs.apply`` at one. Returns a function that takes it back."""
        device, dot, operation = wanted.rpartition(".")
        entry = (f"{device}{dot}{ALIASES.get(operation, operation)}", call)
        self._triggers.append(entry)
        return lambda: self._triggers.remove(entry) if entry in self._triggers else None

    def operation_begins(self, device: str, operation: str) -> None:
        """Tell those who wait for this operation. :raises InternalError: when the world has
        failed, which is a defect of ours."""
        if self.defect is not None:
            raise InternalError(f"the simulated world has failed: {self.defect!r}") from self.defect
        if not self._triggers:
            return
        due = [t for t in self._triggers if t[0] in (operation, f"{device}.{operation}")]
        for trigger in due:
            self._triggers.remove(trigger)
            trigger[1]()

    # --- what processes share --------------------------------------------------------------

    def agree(self, key: str, make: Callable[[], Shared]) -> Shared:
        """The object that processes share under a key; each use is given back by
        :meth:`disagree`, and the last one drops the object."""
        entry = self._agreed.setdefault(key, [None, 0])
        if entry[1] == 0:
            entry[0] = make()
        entry[1] += 1
        value: Shared = entry[0]
        return value

    def disagree(self, key: str) -> None:
        """Give back one use of a shared object."""
        entry = self._agreed[key]
        entry[1] -= 1
        if entry[1] == 0:
            del self._agreed[key]
