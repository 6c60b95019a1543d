"""A rack in use: its lease, its journal, its devices behind gates.

Runs and commands by hand use the same, so that by hand nothing can be done that a run could not,
and the lease, the deadlines and the journal hold for both.
"""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import trio

from testbed.engine.devices import GUARDS
from testbed.engine.gate import Doors, Gate
from testbed.engine.paths import WORLD_FILE, rack_folder
from testbed.errors import DeviceError, RackError, TestbedError
from testbed.hal.capabilities import CAPABILITIES, Device, NicHost, OpticalSwitch
from testbed.hal.registry import DriverContext
from testbed.hal.types import Backend, Identity
from testbed.rack.fabric import SwitchFabric
from testbed.rack.journal import DirtyRun, FileJournal, Journal, dirty_runs
from testbed.rack.lease import Holder, Lease, acquire
from testbed.rack.rack import Rack
from testbed.store.events import LOG
from testbed.timing.marks import EventSink, Timeline

Capability = TypeVar("Capability")


@dataclass(frozen=True)
class Claim:
    """A rack that nobody else can use now.

    :ivar folder: its folder in the state directory.
    :ivar lease: ``None`` in virtual time, where the rack exists in this process only.
    :ivar dirty: runs that have left devices of the rack behind.
    """

    rack: Rack
    folder: Path
    lease: Lease | None
    dirty: Sequence[DirtyRun]

    def check(self) -> None:
        """Refuse to go on without the lease. :raises LeaseError: when it is lost."""
        if self.lease is not None:
            self.lease.check()


class RackSession:
    """An open session on a rack.

    :ivar claim: the lease, and what was dirty at the start.
    :ivar run_id: tag of the processes that it starts.
    :ivar gates: the way to each device of the rack, by name, connected or not.
    :ivar fabric: all switches as one.
    """

    def __init__(
        self,
        claim: Claim,
        run_id: str,
        timeline: Timeline,
        gates: Mapping[str, Gate],
        doors: Doors,
    ) -> None:
        self.claim = claim
        self.rack = claim.rack
        self.virtual = claim.lease is None
        self.run_id = run_id
        self.timeline = timeline
        self.gates = gates
        self.doors = doors
        self._guards: dict[tuple[str, type], Any] = {}
        self.fabric = SwitchFabric(
            self.rack,
            lambda name: self.device(name, OpticalSwitch),
            lambda name: self.device(name, NicHost) if self.has(name, NicHost) else None,
            timeline,
        )

    @property
    def journal(self) -> Journal:
        return self.doors.journal

    @property
    def identities(self) -> Mapping[str, Identity]:
        """What the devices that are connected say they are."""
        return {n: g.identity for n, g in self.gates.items() if g.identity is not None}

    def has(self, name: str, capability: type) -> bool:
        """Whether the device exists and its driver has that capability."""
        entry = self.rack.devices.get(name)
        return (
            entry is not None
            and _capability_name(cast(Hashable, capability)) in entry.driver.capabilities
        )

    def device(self, name: str, capability: type[Capability]) -> Capability:
        """The device behind its guard; connected at its first operation, if it is not yet.

        :raises RackError: when there is no such device, or it lacks the capability.
        """
        guard = self._guards.get((name, capability))
        if guard is None:
            gate = self.gates.get(name)
            if gate is None:
                raise RackError(
                    f"the rack {self.rack.name} has no device {name!r}",
                    remedy=f"its devices are {', '.join(self.gates)}",
                )
            if capability is not Device and not self.has(name, capability):
                entry = self.rack.devices[name]
                raise RackError(
                    f"device {name} ({entry.driver.name}) is no "
                    f"{_capability_name(cast(Hashable, capability)) or capability.__name__}",
                    remedy=f"it has {', '.join(sorted(entry.driver.capabilities))}",
                    device=name,
                )
            guard = GUARDS[capability](gate.device, gate)
            self._guards[name, capability] = guard
        return cast(Capability, guard)

    async def connect(self, names: Collection[str]) -> None:
        """Connect devices in parallel. Changes nothing on any of them.

        :raises DeviceError: when one fails.
        :raises RackError: when several fail, with all of them.
        """
        errors: dict[str, TestbedError] = {}

        async def one(name: str) -> None:
            try:
                await self.gates[name].open()
            except TestbedError as error:
                errors[name] = error

        async with trio.open_nursery() as nursery:
            for name in self.gates:
                if name in names:
                    nursery.start_soon(one, name)
        raise_together([errors[name] for name in self.gates if name in errors])

    def settle_known(self) -> None:
        """Take devices out of the journal whose state is not in doubt."""
        for name in list(self.journal.changes):
            if not self.gates[name].known.doubtful:
                self.journal.settle(name)

    async def close(self) -> list[DeviceError]:
        """Disconnect all devices in parallel; returns what failed."""
        errors: list[DeviceError] = []

        async def one(gate: Gate) -> None:
            try:
                await gate.close()
            except DeviceError as error:
                errors.append(error)

        with trio.CancelScope(shield=True):  # bounded by the deadline of `close`
            async with trio.open_nursery() as nursery:
                for gate in self.gates.values():
                    nursery.start_soon(one, gate)
        return errors


@asynccontextmanager
async def claim_rack(
    rack: Rack,
    *,
    owner: str,
    state_dir: Path,
    virtual: bool = False,
    wait_s: float = 0.0,
    waiting: Callable[[Holder | None], None] | None = None,
) -> AsyncIterator[Claim]:
    """Hold the lease of a rack.

    :param owner: who asks, for people: the run, or the command.
    :param wait_s: how long to wait for the lease, in seconds.
    :param waiting: called once with who holds it, when it has to be waited for.
    :raises LeaseError: when somebody else holds the rack.
    :raises RackError: for virtual time with devices that are no twins.
    """
    _refuse_virtual(rack, virtual)
    folder = rack_folder(rack, state_dir)
    if virtual:
        yield Claim(rack, folder, None, ())
        return
    lease = await acquire(folder, rack=rack.name, run=owner, wait_s=wait_s, waiting=waiting)
    try:
        yield Claim(rack, folder, lease, tuple(dirty_runs(folder, tidy=True)))
    finally:
        lease.release()


@asynccontextmanager
async def open_session(
    claim: Claim,
    *,
    timeline: Timeline,
    run_id: str,
    seed: int = 0,
    devices: Collection[str] = (),
    by_hand: bool = False,
) -> AsyncIterator[RackSession]:
    """Connect to devices of a rack that is claimed, and disconnect at the end.

    The journal is removed at the end unless devices are left in it.

    :param devices: names of those to connect now; others are when they are used first.
    :param by_hand: what is changed is meant to stay, and only devices whose state is in doubt
        are left in the journal; otherwise all are that the user of the session does not settle.
    :raises DeviceError: when a device cannot be connected; ``RackError`` with all, if several.
    """
    rack, virtual = claim.rack, claim.lease is None
    journal = (
        Journal() if virtual else FileJournal(claim.folder, _file_name(run_id), run_id, rack.name)
    )
    doors = Doors(timeline, journal, claim.check, rack.deadlines_s)
    world = None if virtual else str(claim.folder / WORLD_FILE)
    context = DriverContext(rack.name, rack.wiring, seed=seed, virtual=virtual, state_path=world)
    session = RackSession(claim, run_id, timeline, _gates(rack, doors, context), doors)
    try:
        await session.connect(devices)
        yield session
    finally:
        for error in await session.close():
            timeline.event(LOG, message=f"{error.message} (while disconnecting)")
        if by_hand:
            session.settle_known()
        journal.close()


@asynccontextmanager
async def rack_session(
    rack: Rack,
    *,
    owner: str,
    state_dir: Path,
    seed: int = 0,
    virtual: bool = False,
    wait_s: float = 0.0,
    devices: Collection[str] | None = None,
    sink: EventSink | None = None,
    run_id: str | None = None,
) -> AsyncIterator[RackSession]:
    """A session for commands by hand: :func:`claim_rack` and :func:`open_session` in one.

    What is changed is meant to stay. A dirty rack is not refused, for looking at it must be
    possible; ``session.claim.dirty`` tells.

    :param devices: names of those to connect now; all by default.
    :param sink: where events and marks go.
    :param run_id: tag of processes; the owner by default.
    """
    async with (
        claim_rack(rack, owner=owner, state_dir=state_dir, virtual=virtual, wait_s=wait_s) as claim,
        open_session(
            claim,
            timeline=Timeline(sink or (lambda event: None)),
            run_id=run_id or owner,
            seed=seed,
            devices=tuple(rack.devices) if devices is None else devices,
            by_hand=True,
        ) as session,
    ):
        yield session


def _gates(rack: Rack, doors: Doors, context: DriverContext) -> Mapping[str, Gate]:
    """Make all devices of the rack, and connect to none: twins share one world, in which those
    that are not used have their place too."""
    return {
        name: Gate(entry.driver.backends[entry.backend](name, entry.options, context), doors)
        for name, entry in rack.devices.items()
    }


def _refuse_virtual(rack: Rack, virtual: bool) -> None:
    solid = [n for n, entry in rack.devices.items() if entry.backend is not Backend.MOCK]
    if virtual and solid:
        raise RackError(
            f"virtual time is for twins only, and {', '.join(solid)} of rack {rack.name} "
            f"{'is' if len(solid) == 1 else 'are'} not",
            remedy="leave --virtual-time out, or use the twins with --mock",
        )


def _file_name(run: str) -> str:
    """A name for the journal: runs have ids that are unique, commands by hand do not."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", run).strip("-.") or "session"
    return f"{plain}.{secrets.token_hex(3)}"


@functools.cache
def _capability_name(capability: Hashable) -> str | None:
    return next((n for n, kind in CAPABILITIES.items() if kind is capability), None)


def raise_together(errors: Sequence[TestbedError]) -> None:
    """Raise the error, or one that tells all of them."""
    if not errors:
        return
    if len(errors) == 1:
        raise errors[0]
    raise RackError(
        f"{len(errors)} devices failed:\n" + "\n".join(f"  {error.message}" for error in errors),
        devices=[error.fields.get("device") for error in errors],
        failures=[error.as_record() for error in errors],
    )
