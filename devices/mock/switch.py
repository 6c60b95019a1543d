"""What the twins of all optical switches share: circuits as told, light as it is, faults."""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from devices.mock.device import MockDevice
from devices.mock.state import Section
from devices.mock.timing import SwitchTiming
from testbed.errors import DeviceRefused
from testbed.hal.apply import DARK_BELOW_DBM, DeclarativeSwitch
from testbed.hal.registry import DriverContext
from testbed.hal.types import Circuit, FaultSpec, Port, PortInfo, PortState
from testbed.timing.alarm import sleep

EVENTS: Mapping[str, str] = MappingProxyType(
    {
        "fibre-cut": "the fibres in a port are cut; `target`: the port",
        "dark-circuit": "a circuit exists and carries no light; `target`: `1>2`, an ingress "
        "port, or none for all circuits, those made later too",
        "port-stuck": "the element of a port does not move any more; `target`: the port",
        "port-disabled": "the shutter of a port closes and it reads disabled; `target`: the port",
        "port-failed": "the same, and it reads failed; `target`: the port",
    }
)
NO_LIGHT_DB = 200.0
"""Loss of a dark circuit."""


class SwitchOptions(Protocol):
    """Figures that every switch has."""

    @property
    def power_meters(self) -> bool: ...
    @property
    def light_poll(self) -> float: ...
    @property
    def light_deadline(self) -> float: ...
    @property
    def timing(self) -> SwitchTiming: ...
    @property
    def port_map(self) -> dict[Port, PortInfo]: ...


class MockSwitch(MockDevice, DeclarativeSwitch):
    """Base of the twins of optical switches.

    What the switch *tells* about its circuits and where it *guides* light are two things here:
    a command changes the first at once, the light follows when the elements have moved and
    settled, and a fault may keep the two apart for good.

    :ivar light: where the light of this switch goes.
    """

    KINDS = EVENTS

    def __init__(self, name: str, options: SwitchOptions, context: DriverContext) -> None:
        super().__init__(name, context, options.timing.command)
        self.light_poll_s = options.light_poll
        self.light_deadline_s = options.light_deadline
        self._timing = options.timing
        self._metered = options.power_meters
        self._ports = dict(options.port_map)
        self.light = self.world.optics.switch(name)
        self._told: dict[Port, Circuit] = {}
        self._told_set: frozenset[Circuit] | None = frozenset()
        self._guided: dict[Port, Circuit] = {}
        self._moves = 0
        self._moved_by: dict[Port, int] = {}
        self._stuck: set[Port] = set()
        self._dark: set[str] = set()
        self.world.add_part(name, self)

    @abc.abstractmethod
    def loss_db(self, circuit: Circuit) -> float:
        """Loss of a circuit, from fibre to fibre, in dB."""

    # --- OpticalSwitch ---------------------------------------------------------------------

    async def ports(self) -> Mapping[Port, PortInfo]:
        return await self.exchange("ports", lambda: MappingProxyType(self._ports))

    async def circuits(self) -> frozenset[Circuit]:
        return await self.exchange("circuits", lambda: self.told)

    @property
    def told(self) -> frozenset[Circuit]:
        """The circuits that the switch says it has."""
        if self._told_set is None:
            self._told_set = frozenset(self._told.values())
        return self._told_set

    async def send(self, remove: Sequence[Circuit], add: Sequence[Circuit]) -> None:
        """One command; acknowledged when the elements have moved."""
        first = remove[: (len(remove) + 1) // 2], add[: (len(add) + 1) // 2]
        busy_s = await self.exchange(
            "send",
            lambda: self.command_circuits(remove, add),
            half=lambda: self.command_circuits(*first),
            lie=lambda: self._pretend(remove, add),
        )
        await sleep(busy_s)

    async def dark(self, circuits: Sequence[Circuit]) -> frozenset[Circuit] | None:
        """By the power meters: light goes in and none comes out."""
        if not self._metered:
            return None
        return await self.exchange("light", lambda: self._dark_among(circuits))

    def _dark_among(self, circuits: Sequence[Circuit]) -> frozenset[Circuit]:
        light = self.light
        return frozenset(
            circuit
            for circuit in circuits
            if light.leaving_dbm(circuit.egress) <= DARK_BELOW_DBM
            and light.arriving_dbm(circuit.ingress) > DARK_BELOW_DBM
        )

    # --- OpticalPowerMonitor ---------------------------------------------------------------

    async def port_power_dbm(self, ports: Collection[Port]) -> Mapping[Port, float]:
        """Light at each port: leaving it, or else arriving at it from its fibre."""
        if not self._metered:
            raise DeviceRefused(
                f"switch {self._name} has no power meters",
                device=self._name,
                operation="port_power_dbm",
            )
        unknown = [port for port in ports if port not in self._ports]
        if unknown:
            raise DeviceRefused(
                f"switch {self._name} has no port {', '.join(unknown)}",
                device=self._name,
                operation="port_power_dbm",
            )
        return await self.exchange("port_power_dbm", lambda: {p: self._power(p) for p in ports})

    def _power(self, port: Port) -> float:
        return round(max(self.light.leaving_dbm(port), self.light.arriving_dbm(port)), 2)

    # --- how circuits are made -------------------------------------------------------------

    def command_circuits(self, remove: Sequence[Circuit], add: Sequence[Circuit]) -> float:
        """The switch acts on a command; returns for how long it is busy, in seconds."""
        stuck = self._stuck
        if stuck:
            remove = [c for c in remove if c.ingress not in stuck and c.egress not in stuck]
            add = [c for c in add if c.ingress not in stuck and c.egress not in stuck]
        count = len(remove) + len(add)
        self.tell_change(remove, add)
        return self.guide_change(remove, add, moves=count)

    def tell_change(self, remove: Sequence[Circuit], add: Sequence[Circuit]) -> None:
        """Change what is told."""
        for circuit in remove:
            self._told.pop(circuit.ingress, None)
        for circuit in add:
            self._told[circuit.ingress] = circuit
        self._told_set = None
        self.world.changed(self._name)

    def guide_change(
        self, remove: Sequence[Circuit], add: Sequence[Circuit], *, moves: int
    ) -> float:
        """Change where light goes: it goes at once where it is taken away, and comes when the
        elements have moved and settled. Returns the duration of the movement."""
        timing = self._timing
        draws = max(1, moves) if timing.serial else 1
        busy_s = sum(timing.switching.draw_s(self.rng) for _ in range(draws))
        self._moves += 1
        move, moved_by = self._moves, self._moved_by
        for circuit in remove:
            self._guided.pop(circuit.ingress, None)
            moved_by.pop(circuit.ingress, None)
        for circuit in add:
            self._guided[circuit.ingress] = circuit
            moved_by[circuit.ingress] = move
        gone = [c.ingress for c in remove] + [c.ingress for c in add]
        self.light.guide(gone, {})
        if add:

            def light() -> None:
                here = [c for c in add if moved_by.get(c.ingress) == move]
                self.light.guide((), {c.ingress: self._way(c) for c in here})

            self.world.timers.after(busy_s + timing.settle.draw_s(self.rng), light)
        return busy_s

    def _pretend(self, remove: Sequence[Circuit], add: Sequence[Circuit]) -> float:
        self.tell_change(remove, add)
        self.repair_by("lie", self._tell_the_truth)
        return self._timing.switching.draw_s(self.rng)

    def _tell_the_truth(self) -> None:
        self._told = dict(self._guided)
        self._told_set = None
        self.world.changed(self._name)

    def _way(self, circuit: Circuit) -> tuple[Port, float]:
        return circuit.egress, NO_LIGHT_DB if self._is_dark(circuit) else self.loss_db(circuit)

    def _is_dark(self, circuit: Circuit) -> bool:
        dark = self._dark
        return bool(dark) and ("*" in dark or str(circuit) in dark or circuit.ingress in dark)

    # --- state file ------------------------------------------------------------------------

    def snapshot(self) -> Section:
        """Circuits and ports that are not enabled."""
        return {
            "circuits": [str(c) for c in sorted(self._told.values())],
            "ports": {p: str(i.state) for p, i in self._ports.items() if not _enabled(i)},
        }

    def restore(self, section: Section) -> None:
        """Take over circuits, with their light, and states of ports."""
        circuits = [Circuit(*text.split(">")) for text in section["circuits"]]
        for port, state in section["ports"].items():
            self._set_port(port, PortState(state))
        self._told = {c.ingress: c for c in circuits}
        self._told_set = None
        self._guided = dict(self._told)
        self.light.guide((), {c.ingress: self._way(c) for c in circuits})

    # --- faults ----------------------------------------------------------------------------

    def event(self, fault: FaultSpec) -> Callable[[], None]:
        if fault.kind == "dark-circuit":
            return self._dark_circuit(fault)
        port = fault.target
        if port not in self._ports:
            raise self.no_fault(
                f"there is no port {port}" if port else f"{fault.kind} needs a port as its target"
            )
        match fault.kind:
            case "fibre-cut":
                return self._fibre_cut(port)
            case "port-stuck":
                return lambda: self._stick(port)
            case "port-disabled":
                return lambda: self._close_port(port, PortState.DISABLED)
            case _:
                return lambda: self._close_port(port, PortState.FAILED)

    def _dark_circuit(self, fault: FaultSpec) -> Callable[[], None]:
        target = fault.target or "*"
        ends = target.split(">")
        if target != "*" and (len(ends) > 2 or any(end not in self._ports for end in ends)):
            raise self.no_fault(f"{target!r} is no circuit of it; write ingress>egress")

        def happen() -> None:
            self._dark.add(target)
            self.look_again()
            self.repair_by(f"dark {target}", mend)

        def mend() -> None:
            self._dark.discard(target)
            self.look_again()

        return happen

    def look_again(self) -> None:
        """Guide the light of all settled circuits anew, with the losses that hold now."""
        settled = [c for c in self._guided.values() if self.light.goes_to(c.ingress) == c.egress]
        self.light.guide((), {c.ingress: self._way(c) for c in settled})

    def _fibre_cut(self, port: Port) -> Callable[[], None]:
        optics = self.world.optics
        fibres = optics.fibres_at(self._name, port)
        if not fibres:
            raise self.no_fault(f"no fibre is plugged into port {port}")

        def cut(state: bool) -> None:
            for fibre in fibres:
                optics.cut(fibre, cut=state)

        def happen() -> None:
            cut(True)
            self.repair_by(f"fibre {port}", lambda: cut(False))

        return happen

    def _stick(self, port: Port) -> None:
        self._stuck.add(port)
        self.repair_by(f"stuck {port}", lambda: self._stuck.discard(port))

    def _close_port(self, port: Port, state: PortState) -> None:
        if self._ports[port].state is PortState.ENABLED:
            self._set_port(port, state)
            self.repair_by(f"port {port}", lambda: self._set_port(port, PortState.ENABLED))

    def _set_port(self, port: Port, state: PortState) -> None:
        before = self._ports[port]
        self._ports[port] = replace(before, state=state)
        if _enabled(before) and state is not PortState.ENABLED:
            self.light.shut(port, shut=True)
        elif not _enabled(before) and state is PortState.ENABLED:
            self.light.shut(port, shut=False)
        self.world.changed(self._name)


def _enabled(info: PortInfo) -> bool:
    return info.state is PortState.ENABLED
