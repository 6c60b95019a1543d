"""Guards: the capabilities of :mod:`testbed.hal.capabilities`, each operation through a gate.

One small class a capability, written out, so that a reader sees which operations change
something, what is remembered before they do, and what a reading teaches. See
:mod:`testbed.engine.gate` for what every operation gets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from testbed.engine.gate import Gate
from testbed.hal.capabilities import (
    Device,
    FaultInjectable,
    GpuHost,
    Host,
    MeshSwitch,
    NicHost,
    OpticalPowerMonitor,
    OpticalSwitch,
    PowerController,
    PowerMeter,
    Process,
)
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

Guarded = TypeVar("Guarded", bound=Device)


class Guard(Generic[Guarded]):
    """What all guards have."""

    def __init__(self, device: Guarded, gate: Gate) -> None:
        self._device = device
        self._gate = gate

    @property
    def name(self) -> str:
        return self._device.name

    @property
    def backend(self) -> Backend:
        return self._device.backend

    async def open(self) -> Identity:
        return await self._gate.open()

    async def close(self) -> None:
        await self._gate.close()


class GuardedSwitch(Guard[OpticalSwitch]):
    """An ``OpticalSwitch``; the circuits before the first change are remembered."""

    async def ports(self) -> Mapping[Port, PortInfo]:
        return await self._gate.read("ports", self._device.ports)

    async def circuits(self) -> frozenset[Circuit]:
        found = await self._gate.read("circuits", self._device.circuits)
        self._gate.known.saw("circuits", found, f"{len(found)} circuits")
        return found

    async def apply(self, target: Collection[Circuit]) -> ApplyReport:
        before = {}
        if self._gate.journal_lacks("circuits"):
            there = self._gate.known.parts.get("circuits")
            if there is None:
                there = await self.circuits()
            before["circuits"] = sorted(map(str, there))
        wanted = frozenset(target)
        report = await self._gate.change("apply", before, self._device.apply, wanted)
        self._gate.known.saw("circuits", wanted, f"{len(wanted)} circuits")
        return report


class GuardedPowerMonitor(Guard[OpticalPowerMonitor]):
    """An ``OpticalPowerMonitor``."""

    async def port_power_dbm(self, ports: Collection[Port]) -> Mapping[Port, float]:
        return await self._gate.read("port_power_dbm", self._device.port_power_dbm, ports)


class GuardedMesh(Guard[MeshSwitch]):
    """A ``MeshSwitch``; the cells before the first change are remembered."""

    async def cells(self) -> Sequence[CellState]:
        found = await self._gate.read("cells", self._device.cells)
        crossed = sum(cell is CellState.CROSS for cell in found)
        self._gate.known.saw("cells", found, f"{crossed} of {len(found)} cells crossed")
        return found

    async def program(self, states: Sequence[CellState]) -> None:
        before = {}
        if self._gate.journal_lacks("cells"):
            before["cells"] = [str(cell) for cell in await self.cells()]
        await self._gate.change("program", before, self._device.program, states)
        self._gate.known.parts.pop("circuits", None)
        self._gate.known.saw("cells", states, f"{len(states)} cells programmed")


class GuardedProcess:
    """A ``Process``. Its lines, and its end, come when they come and have no deadline; what is
    sent to it has."""

    def __init__(self, process: Process, gate: Gate) -> None:
        self._process = process
        self._gate = gate

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def host(self) -> str:
        return self._process.host

    def lines(self) -> AsyncIterator[str]:
        return self._process.lines()

    async def send_line(self, line: str) -> None:
        await self._gate.change("send_line", {}, self._process.send_line, line)

    async def signal(self, number: int) -> None:
        await self._gate.change("signal", {}, self._process.signal, number)

    async def wait(self) -> int:
        return await self._process.wait()


class GuardedHost(Guard[Host]):
    """A ``Host``; the tags of what is started are remembered."""

    async def run(self, argv: Sequence[str], *, stdin: str = "") -> CommandResult:
        return await self._gate.change("run", {}, self._device.run, argv, stdin=stdin)

    async def spawn(
        self, argv: Sequence[str], *, tag: str, env: Mapping[str, str] | None = None
    ) -> Process:
        process = await self._gate.change(
            "spawn", {"tags": {tag: True}}, self._device.spawn, argv, tag=tag, env=env
        )
        return GuardedProcess(process, self._gate)

    async def put(self, local: Path, remote: str) -> None:
        await self._gate.change("put", {}, self._device.put, local, remote)

    async def get(self, remote: str, local: Path) -> None:
        await self._gate.read("get", self._device.get, remote, local)

    async def health(self) -> HostHealth:
        seen = await self._gate.read("health", self._device.health)
        self._gate.known.saw("boot", seen.boot_id, f"boot {seen.boot_id}")
        return seen

    async def processes(self, tag: str | None = None) -> Sequence[ProcessInfo]:
        found = await self._gate.read("processes", self._device.processes, tag)
        self._gate.known.saw("processes", len(found), f"{len(found)} processes of ours")
        return found

    async def kill(self, tag: str) -> int:
        return await self._gate.change("kill", {}, self._device.kill, tag)


class GuardedGpuHost(GuardedHost):
    """A ``GpuHost``."""

    _device: GpuHost

    async def gpus(self) -> Sequence[GpuState]:
        return await self._gate.read("gpus", self._device.gpus)

    async def gpu_errors(self) -> Sequence[GpuError]:
        return await self._gate.read("gpu_errors", self._device.gpu_errors)


class GuardedNics(Guard[NicHost]):
    """A ``NicHost``; whether an interface was enabled is remembered."""

    async def interfaces(self) -> Mapping[str, NicState]:
        found = await self._gate.read("interfaces", self._device.interfaces)
        words = ", ".join(f"{name} {state.carrier}" for name, state in found.items())
        self._gate.known.saw("interfaces", found, words)
        return found

    async def wait_carrier(self, interface: str, carrier: Carrier) -> NicState:
        return await self._gate.read("wait_carrier", self._device.wait_carrier, interface, carrier)

    async def set_interface(self, interface: str, *, enabled: bool) -> None:
        before: dict[str, dict[str, bool]] = {}
        if self._gate.journal_lacks("interfaces", interface):
            there = (await self.interfaces()).get(interface)
            before["interfaces"] = {} if there is None else {interface: there.enabled}
        await self._gate.change(
            "set_interface", before, self._device.set_interface, interface, enabled=enabled
        )
        self._gate.known.parts.pop("interfaces", None)


class GuardedPower(Guard[PowerController]):
    """A ``PowerController``; the state of an outlet before its first switching is remembered."""

    async def outlets(self) -> Mapping[str, OutletState]:
        found = await self._gate.read("outlets", self._device.outlets)
        words = ", ".join(f"{outlet} {state}" for outlet, state in found.items())
        self._gate.known.saw("outlets", found, words)
        return found

    async def switch(self, outlet: str, state: OutletState) -> None:
        before: dict[str, dict[str, str]] = {}
        if self._gate.journal_lacks("outlets", outlet):
            there = self._gate.known.parts.get("outlets")
            if there is None:
                there = await self.outlets()
            before["outlets"] = {outlet: str(there[outlet])} if outlet in there else {}
        await self._gate.change("switch", before, self._device.switch, outlet, state)
        # Acknowledged is not switched: only a reading tells.
        self._gate.known.parts.pop("outlets", None)


class GuardedPowerMeter(Guard[PowerMeter]):
    """A ``PowerMeter``."""

    async def outlet_power_w(self) -> Mapping[str, float]:
        return await self._gate.read("outlet_power_w", self._device.outlet_power_w)


class GuardedFaults(Guard[FaultInjectable]):
    """A ``FaultInjectable``; that something was injected is remembered."""

    def fault_kinds(self) -> Mapping[str, str]:
        return self._device.fault_kinds()

    async def inject(self, fault: FaultSpec) -> None:
        self._gate.known.parts.clear()  # a fault may change anything
        await self._gate.change("inject", {}, self._device.inject, fault)

    async def clear_faults(self) -> None:
        self._gate.known.parts.clear()
        await self._gate.change("clear_faults", {}, self._device.clear_faults)


GUARDS: Mapping[type, Callable[[Any, Gate], Any]] = {
    Device: Guard,
    OpticalSwitch: GuardedSwitch,
    OpticalPowerMonitor: GuardedPowerMonitor,
    MeshSwitch: GuardedMesh,
    Host: GuardedHost,
    GpuHost: GuardedGpuHost,
    NicHost: GuardedNics,
    PowerController: GuardedPower,
    PowerMeter: GuardedPowerMeter,
    FaultInjectable: GuardedFaults,
}
"""The guard of each capability."""
