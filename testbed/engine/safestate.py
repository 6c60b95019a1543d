"""Brings devices to the state in which nobody needs to fear them, and reads it back.

That state is the rack file's ``safe_state``. What it does not speak of is put back as the journal
says it was before the run: circuits of a switch that is not mentioned, outlets, interfaces, cells
of a mesh; processes that carry the run's tag are ended. The same code ends every trial (so that the
next one starts from a declared state that was read back), ends a run, and recovers a dead one.

Faults are cleared first, since they may be what keeps a device from answering; then power and
light, then hosts, which may have to boot before they answer. Every device is tried, whatever
becomes of the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio

from testbed.engine.interrupts import Interrupts
from testbed.engine.session import RackSession
from testbed.errors import DeviceLost, DeviceTimeout, StateMismatch, TestbedError
from testbed.hal.capabilities import (
    FaultInjectable,
    Host,
    MeshSwitch,
    NicHost,
    OpticalSwitch,
    PowerController,
)
from testbed.hal.power import switch_verified
from testbed.hal.types import CellState, Circuit, OutletState
from testbed.rack.journal import DeviceChanges
from testbed.timing.clock import now_s

CUT_OFF = "the cleanup was cut off before it was reached"
BOOT_PAUSE_S = 0.25
"""Pause between two looks at a host that is booting, in seconds."""

Verdicts = dict[str, str | None]
"""By device: ``None`` when it is safe, else why it is not known to be."""

NOTHING = DeviceChanges()


async def make_safe(
    session: RackSession, changes: Mapping[str, DeviceChanges], interrupts: Interrupts
) -> Verdicts:
    """Bring every device that is connected, or was changed, to its safe state.

    Sheltered: only a second interrupt ends it. Each operation has its own deadline.

    :param changes: what was done to devices, and what was there before.
    """
    rack = session.rack
    names = [n for n, gate in session.gates.items() if gate.identity is not None or n in changes]
    verdicts: Verdicts = dict.fromkeys(names, CUT_OFF)
    work = _Work(session, changes, interrupts)
    phases: list[dict[str, Callable[[], Awaitable[None]]]] = [{}, {}, {}]
    for name in names:
        if "inject" in changes.get(name, NOTHING).operations:
            phases[0][name] = partial(work.clear_faults, name)
        if rack.devices[name].driver.kind == "host":
            phases[2][name] = partial(work.host, name)
        else:
            phases[1][name] = partial(work.device, name)

    async def one(name: str, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except TestbedError as error:
            failed.setdefault(name, error.message)
        except Exception as error:
            failed.setdefault(name, f"{type(error).__name__}: {error}")

    failed: dict[str, str] = {}
    with interrupts.sheltered():
        for phase in phases:
            if not phase:
                continue
            async with trio.open_nursery() as nursery:
                for name, step in phase.items():
                    nursery.start_soon(one, name, step)
        verdicts = {name: failed.get(name) for name in names}
    return verdicts | failed


class _Work:
    """The steps, for one device each."""

    def __init__(
        self,
        session: RackSession,
        changes: Mapping[str, DeviceChanges],
        interrupts: Interrupts,
    ) -> None:
        self._session = session
        self._changes = changes
        self._interrupts = interrupts
        self._safe = session.rack.safe_state

    async def clear_faults(self, name: str) -> None:
        if self._session.has(name, FaultInjectable):
            await self._session.device(name, FaultInjectable).clear_faults()

    async def device(self, name: str) -> None:
        """A switch or a power controller, by what it can do."""
        changed = self._changes.get(name, NOTHING)
        if self._session.has(name, MeshSwitch) and "cells" in changed.before:
            await self._cells(name, [CellState(cell) for cell in changed.before["cells"]])
        if self._session.has(name, OpticalSwitch):
            await self._circuits(name, changed)
        if self._session.has(name, PowerController):
            await self._outlets(name, changed)

    async def _cells(self, name: str, wanted: list[CellState]) -> None:
        mesh = self._session.device(name, MeshSwitch)
        if list(await mesh.cells()) == wanted:
            return
        await mesh.program(wanted)
        if list(await mesh.cells()) != wanted:
            raise StateMismatch(
                f"mesh {name} has not the cells back that it had before the run",
                device=name,
                operation="program",
            )

    async def _circuits(self, name: str, changed: DeviceChanges) -> None:
        switch = self._session.device(name, OpticalSwitch)
        found = await switch.circuits()
        target = self._safe.circuits.get(name)
        if target == "keep":
            return
        if target is None:
            if "circuits" in changed.before:
                target = tuple(_circuit(text) for text in changed.before["circuits"])
            elif "apply" in changed.operations:
                raise StateMismatch(
                    f"switch {name} has no safe state in the rack file, and nobody knows what it "
                    "was before",
                    device=name,
                    operation="apply",
                    remedy=f"declare safe_state.circuits.{name}",
                )
            else:
                return
        if found != frozenset(target):
            await switch.apply(target)  # which reads back, and fails if it is not so

    async def _outlets(self, name: str, changed: DeviceChanges) -> None:
        controller = self._session.device(name, PowerController)
        wanted = {o: OutletState(s) for o, s in changed.before.get("outlets", {}).items()}
        for reference, state in self._safe.outlets.items():
            if reference.controller == name:
                wanted[reference.outlet] = state
        found = await controller.outlets()
        for state in OutletState:
            wrong = [o for o, s in wanted.items() if s is state and found.get(o) is not s]
            if wrong:
                await switch_verified(controller, wrong, state)

    async def host(self, name: str) -> None:
        """A host; one that may be booting because of this run is waited for."""
        if self._off_when_safe(name):
            return
        end_s = now_s() + self._session.doors.deadline_s("boot")
        while True:
            try:
                await self._host(name)
            except (DeviceTimeout, DeviceLost):
                patient = self._may_boot(name) and not self._interrupts.stopping
                if not patient or now_s() >= end_s:
                    raise
            else:
                return
            await trio.sleep(BOOT_PAUSE_S)

    async def _host(self, name: str) -> None:
        changed = self._changes.get(name, NOTHING)
        tags = () if self._safe.processes == "keep" else tuple(changed.before.get("tags", ()))
        if self._session.has(name, Host):
            host = self._session.device(name, Host)
            if not tags:
                await host.health()
            for tag in tags:
                await self._end_processes(host, tag)
        if self._session.has(name, NicHost) and changed.before.get("interfaces"):
            await self._interfaces(name, changed.before["interfaces"])

    async def _end_processes(self, host: Host, tag: str) -> None:
        if not await host.processes(tag):
            return
        await host.kill(tag)
        left = await host.processes(tag)
        if left:
            raise StateMismatch(
                f"{len(left)} processes of {tag} still run on {host.name}: "
                + ", ".join(str(process.pid) for process in left),
                device=host.name,
                operation="kill",
            )

    async def _interfaces(self, name: str, before: Mapping[str, bool]) -> None:
        nic = self._session.device(name, NicHost)
        found = await nic.interfaces()
        for interface, enabled in before.items():
            if interface in found and found[interface].enabled is not enabled:
                await nic.set_interface(interface, enabled=enabled)

    def _may_boot(self, name: str) -> bool:
        """Whether this run did anything that takes a host down: only then is it waited for. A
        host that hangs for another reason costs the deadline of one reading."""
        if "inject" in self._changes.get(name, NOTHING).operations:
            return True
        return any(
            "switch" in changed.operations and self._session.has(device, PowerController)
            for device, changed in self._changes.items()
        )

    def _off_when_safe(self, name: str) -> bool:
        feeds = self._session.rack.wiring.feeds_of(name)
        return bool(feeds) and all(self._safe.outlets.get(f) is OutletState.OFF for f in feeds)


def _circuit(text: str) -> Circuit:
    ingress, _, egress = text.partition(">")
    return Circuit(ingress, egress)
