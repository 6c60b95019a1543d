"""Devices out of plain synchronous driver classes.

A lab writes one of the ``Sync…`` protocols below as a class that blocks as it likes, and wraps
it: ``ThreadedSwitch("ocs0", lambda: MySwitch(address))`` is an
:class:`~testbed.hal.capabilities.OpticalSwitch` with ``apply`` and all its promises. See
:mod:`testbed.hal.threads` for threads, deadlines and errors, and the guide "Write a driver".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from testbed.hal.apply import DARK_BELOW_DBM, DeclarativeSwitch
from testbed.hal.threads import GRACE_S, Driver, SyncDevice, ThreadedSession
from testbed.hal.types import (
    Backend,
    Circuit,
    CommandResult,
    HostHealth,
    Identity,
    OutletState,
    Port,
    PortInfo,
)


class SyncSwitch(SyncDevice, Protocol):
    """An optical switch. ``send`` returns when the device has acknowledged."""

    def ports(self) -> Mapping[Port, PortInfo]: ...
    def read_circuits(self) -> Collection[Circuit]: ...
    def send(self, remove: Sequence[Circuit], add: Sequence[Circuit]) -> None: ...


class SyncMeteredSwitch(SyncSwitch, Protocol):
    """An optical switch that measures light per port, in dBm."""

    def port_power_dbm(self, ports: Collection[Port]) -> Mapping[Port, float]: ...


class SyncPower(SyncDevice, Protocol):
    """A power controller. ``switch`` returns when the device has acknowledged."""

    def outlets(self) -> Mapping[str, OutletState]: ...
    def switch(self, outlet: str, state: OutletState) -> None: ...


class SyncMeteredPower(SyncPower, Protocol):
    """A power controller that measures electrical power per outlet, in watts."""

    def outlet_power_w(self) -> Mapping[str, float]: ...


class SyncCommandHost(SyncDevice, Protocol):
    """A machine that runs commands to their end: what a serial console or an agent can do.

    There is no ``spawn`` here: watching processes needs several conversations at once, and
    a driver with one blocking session cannot have them.
    """

    def run(self, argv: Sequence[str], stdin: str) -> CommandResult: ...
    def put(self, local: Path, remote: str) -> None: ...
    def get(self, remote: str, local: Path) -> None: ...
    def health(self) -> HostHealth: ...


SwitchDriver = TypeVar("SwitchDriver", bound=SyncSwitch)
PowerDriver = TypeVar("PowerDriver", bound=SyncPower)


class ThreadedDevice(Generic[Driver]):
    """Common part of all devices below.

    :param name: name of the device in the rack file.
    :param make: makes a driver object without connecting it; called once a session.
    :param deadline_s: of an operation where its caller gives none, in seconds.
    :param grace_s: time for a torn-down session to end its thread, in seconds.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Driver],
        *,
        backend: Backend = Backend.REAL,
        deadline_s: float | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        self._name = name
        self._backend = backend
        self.session: ThreadedSession[Driver] = ThreadedSession(
            name, make, deadline_s=deadline_s, grace_s=grace_s
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def backend(self) -> Backend:
        return self._backend

    async def open(self) -> Identity:
        return await self.session.open()

    async def close(self) -> None:
        await self.session.close()


class ThreadedSwitch(ThreadedDevice[SwitchDriver], DeclarativeSwitch):
    """An ``OpticalSwitch`` over a :class:`SyncSwitch`."""

    async def ports(self) -> Mapping[Port, PortInfo]:
        return await self.session.call("ports", lambda driver: driver.ports())

    async def circuits(self) -> frozenset[Circuit]:
        return await self.session.call(
            "circuits",
            lambda driver: frozenset(driver.read_circuits()),
            state_of=lambda circuits: f"{len(circuits)} circuits",
        )

    async def send(self, remove: Sequence[Circuit], add: Sequence[Circuit]) -> None:
        await self.session.call("send", lambda driver: driver.send(remove, add))


class ThreadedMeteredSwitch(ThreadedSwitch[SyncMeteredSwitch]):
    """An ``OpticalSwitch`` and ``OpticalPowerMonitor``: ``apply`` waits for the light."""

    async def port_power_dbm(self, ports: Collection[Port]) -> Mapping[Port, float]:
        return await self.session.call(
            "port_power_dbm", lambda driver: driver.port_power_dbm(ports)
        )

    async def dark(self, circuits: Sequence[Circuit]) -> frozenset[Circuit]:
        read = await self.port_power_dbm([p for c in circuits for p in (c.ingress, c.egress)])
        return frozenset(
            c
            for c in circuits
            if read[c.ingress] > DARK_BELOW_DBM and read[c.egress] <= DARK_BELOW_DBM
        )


class ThreadedPower(ThreadedDevice[PowerDriver]):
    """A ``PowerController`` over a :class:`SyncPower`."""

    async def outlets(self) -> Mapping[str, OutletState]:
        return await self.session.call(
            "outlets",
            lambda driver: dict(driver.outlets()),
            state_of=lambda states: ", ".join(f"{o}={s}" for o, s in states.items()),
        )

    async def switch(self, outlet: str, state: OutletState) -> None:
        await self.session.call("switch", lambda driver: driver.switch(outlet, state))


class ThreadedMeteredPower(ThreadedPower[SyncMeteredPower]):
    """A ``PowerController`` and ``PowerMeter``."""

    async def outlet_power_w(self) -> Mapping[str, float]:
        return await self.session.call("outlet_power_w", lambda driver: driver.outlet_power_w())


class ThreadedCommandHost(ThreadedDevice[SyncCommandHost]):
    """The part of a ``Host`` that needs one conversation only."""

    async def run(self, argv: Sequence[str], *, stdin: str = "") -> CommandResult:
        return await self.session.call("run", lambda driver: driver.run(argv, stdin))

    async def put(self, local: Path, remote: str) -> None:
        await self.session.call("put", lambda driver: driver.put(local, remote))

    async def get(self, remote: str, local: Path) -> None:
        await self.session.call("get", lambda driver: driver.get(remote, local))

    async def health(self) -> HostHealth:
        return await self.session.call(
            "health",
            lambda driver: driver.health(),
            state_of=lambda seen: f"boot {seen.boot_id}, up for {seen.uptime_s:.0f} s",
        )
