"""Capabilities: small protocols, each a few methods. A driver says which of them it has.

Every method is a coroutine that may be cancelled at any await; the caller sets the deadline
by a trio cancel scope (the engine's :mod:`testbed.engine.devices` does so for every
operation). After a cancelled or failed operation the state of a device is unknown until it
has been read back.

All methods raise the kinds of :class:`testbed.errors.DeviceError`, and no other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from testbed.hal.types import (
    ApplyReport,
    Backend,
    Carrier,
    CellState,
    Circuit,
    CommandResult,
    FaultSpec,
    GpuError,
    GpuState,
    HostHealth,
    Identity,
    NicState,
    OutletState,
    Port,
    PortInfo,
    ProcessInfo,
)


@runtime_checkable
class Device(Protocol):
    """What every driver has. ``open`` connects and identifies; both ends may be called twice."""

    @property
    def name(self) -> str: ...
    @property
    def backend(self) -> Backend: ...
    async def open(self) -> Identity: ...
    async def close(self) -> None: ...


@runtime_checkable
class OpticalSwitch(Device, Protocol):
    """A switch that carries light from ports to ports.

    ``apply`` is declarative: the target is *all* circuits of the switch afterwards. It reads
    back, sends only the difference, waits for the light where that can be seen, reads back
    again. Applying what is there sends nothing. Port conflicts, unknown and disabled ports
    are refused (:class:`~testbed.errors.DeviceRefused`) before anything is sent; a state other
    than the target afterwards is a :class:`~testbed.errors.StateMismatch`. Drivers get all
    this from :class:`testbed.hal.apply.DeclarativeSwitch`.
    """

    async def ports(self) -> Mapping[Port, PortInfo]: ...
    async def circuits(self) -> frozenset[Circuit]: ...
    async def apply(self, target: Collection[Circuit]) -> ApplyReport: ...


@runtime_checkable
class OpticalPowerMonitor(Device, Protocol):
    """A switch that measures light per port, in dBm; a dark port reads at or below -50 dBm."""

    async def port_power_dbm(self, ports: Collection[Port]) -> Mapping[Port, float]: ...


@runtime_checkable
class MeshSwitch(Device, Protocol):
    """A programmable photonic mesh: a vector of 2x2 cells, each in bar or cross state."""

    async def cells(self) -> Sequence[CellState]: ...
    async def program(self, states: Sequence[CellState]) -> None: ...


@runtime_checkable
class Process(Protocol):
    """A process that was started on a host, with its lines of standard output as a stream.

    Iterating ends when the process closes its output or the connection to it is lost; then
    ``wait`` tells which: it returns the exit status (negative: minus the signal), or raises
    :class:`~testbed.errors.DeviceLost`.
    """

    @property
    def pid(self) -> int: ...
    @property
    def host(self) -> str: ...
    def lines(self) -> AsyncIterator[str]: ...
    async def send_line(self, line: str) -> None: ...
    async def signal(self, number: int) -> None: ...
    async def wait(self) -> int: ...


@runtime_checkable
class Host(Device, Protocol):
    """A machine that runs commands. Commands are argument lists, never shell text.

    Processes started by ``spawn`` carry ``tag`` (the run's id), so that whatever is left of a
    run can be found and ended.
    """

    async def run(self, argv: Sequence[str], *, stdin: str = "") -> CommandResult: ...
    async def spawn(
        self, argv: Sequence[str], *, tag: str, env: Mapping[str, str] | None = None
    ) -> Process: ...
    async def put(self, local: Path, remote: str) -> None: ...
    async def get(self, remote: str, local: Path) -> None: ...
    async def health(self) -> HostHealth: ...
    async def processes(self, tag: str | None = None) -> Sequence[ProcessInfo]: ...
    async def kill(self, tag: str) -> int: ...


@runtime_checkable
class GpuHost(Host, Protocol):
    """A host with GPUs. ``gpu_errors`` are those since the host has booted."""

    async def gpus(self) -> Sequence[GpuState]: ...
    async def gpu_errors(self) -> Sequence[GpuError]: ...


@runtime_checkable
class NicHost(Device, Protocol):
    """A host that tells the state of its data interfaces, and can wait for a carrier."""

    async def interfaces(self) -> Mapping[str, NicState]: ...
    async def wait_carrier(self, interface: str, carrier: Carrier) -> NicState: ...
    async def set_interface(self, interface: str, *, enabled: bool) -> None: ...


@runtime_checkable
class PowerController(Device, Protocol):
    """Switched outlets. ``switch`` returns when the command is acknowledged, not when it is so;
    use :mod:`testbed.hal.power` for verified switching and for ``cycle``."""

    async def outlets(self) -> Mapping[str, OutletState]: ...
    async def switch(self, outlet: str, state: OutletState) -> None: ...


@runtime_checkable
class PowerMeter(Device, Protocol):
    """Measures electrical power per outlet, in watts."""

    async def outlet_power_w(self) -> Mapping[str, float]: ...


@runtime_checkable
class FaultInjectable(Device, Protocol):
    """A twin or an emulator that can be made to misbehave. No real device has this."""

    def fault_kinds(self) -> Mapping[str, str]: ...
    async def inject(self, fault: FaultSpec) -> None: ...
    async def clear_faults(self) -> None: ...


CAPABILITIES: Mapping[str, type] = {
    "optical-switch": OpticalSwitch,
    "optical-power": OpticalPowerMonitor,
    "mesh-switch": MeshSwitch,
    "host": Host,
    "gpu-host": GpuHost,
    "nic-host": NicHost,
    "power-controller": PowerController,
    "power-meter": PowerMeter,
    "fault-injectable": FaultInjectable,
}
"""Names of the capabilities, as used in messages, markers and ``testbed devices``."""
