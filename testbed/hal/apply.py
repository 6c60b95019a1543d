"""Declarative switching, once for all optical switches.

A driver gives four small primitives; :class:`DeclarativeSwitch` makes ``apply`` out of them, so
that every switch, real or simulated, keeps the same promises.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from operator import attrgetter

import trio

from testbed.errors import DeviceRefused, StateMismatch
from testbed.hal.types import (
    ApplyReport,
    Circuit,
    Port,
    PortDirection,
    PortInfo,
    PortState,
)
from testbed.timing.alarm import sleep
from testbed.timing.clock import now_s

DARK_BELOW_DBM = -50.0
"""A port that reads less is taken for dark."""

# Much faster than comparing circuits with each other, on hundreds of them.
_BY_PORTS = attrgetter("ingress", "egress")


class DeclarativeSwitch(abc.ABC):
    """``apply`` from primitives.

    :cvar light_poll_s: pause between two looks at the light, in seconds.
    :cvar light_deadline_s: time for the light to come after the acknowledgement, in seconds.
    """

    light_poll_s: float = 0.002
    light_deadline_s: float = 1.0

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name of the device in the rack file."""

    @abc.abstractmethod
    async def ports(self) -> Mapping[Port, PortInfo]:
        """All ports with direction and state."""

    @abc.abstractmethod
    async def circuits(self) -> frozenset[Circuit]:
        """Circuits that exist, read from the device."""

    @abc.abstractmethod
    async def send(self, remove: Sequence[Circuit], add: Sequence[Circuit]) -> None:
        """Command the difference, in as few messages as the protocol allows; returns when the
        device has acknowledged."""

    async def dark(self, circuits: Sequence[Circuit]) -> frozenset[Circuit] | None:
        """Those of the circuits through which no light comes although light goes in; ``None``
        when this device cannot tell."""
        return None

    async def apply(self, target: Collection[Circuit]) -> ApplyReport:
        """Make the circuits of the switch exactly ``target``.

        What is there is read first, every time: nothing that an earlier operation left behind,
        finished or not, is taken for granted. Applies of one switch run one after the other.

        :raises DeviceRefused: for a port conflict, an unknown, disabled or wrong-way port;
            nothing was sent.
        :raises StateMismatch: when the light or the read-back is not as asked.
        """
        async with self._applying:
            wanted = frozenset(target)
            before = await self.circuits()
            remove = sorted(before - wanted, key=_BY_PORTS)
            add = sorted(wanted - before, key=_BY_PORTS)
            await self.check(wanted, changing=add)
            unchanged = len(wanted & before)
            if not remove and not add:
                return ApplyReport(unchanged=unchanged)
            sent_s = now_s()
            await self.send(remove, add)
            acknowledged_s = now_s()
            dark = await self._wait_for_light(add)
            after = await self.circuits()
            if dark or after != wanted:
                raise self._mismatch(wanted, after, dark or frozenset(), acknowledged_s)
            return ApplyReport(
                added=tuple(add),
                removed=tuple(remove),
                unchanged=unchanged,
                sent_s=sent_s,
                acknowledged_s=acknowledged_s,
                verified_s=now_s(),
                light_checked=bool(add) and dark is not None,
            )

    async def check(self, target: Collection[Circuit], *, changing: Collection[Circuit]) -> None:
        """Refuse an impossible target before anything is sent; see :func:`check_target`."""
        check_target(self.name, target, changing, await self.ports())

    @cached_property
    def _applying(self) -> trio.Lock:
        return trio.Lock()

    async def _wait_for_light(self, added: Sequence[Circuit]) -> frozenset[Circuit] | None:
        """The circuits that are dark when the time for the light is over, hopefully none;
        ``None`` when this device cannot tell."""
        if not added:
            return frozenset()
        end_s = now_s() + self.light_deadline_s
        while True:
            dark = await self.dark(added)
            left_s = end_s - now_s()
            if not dark or left_s <= 0:
                return dark
            await sleep(min(self.light_poll_s, left_s))

    def _mismatch(
        self,
        wanted: frozenset[Circuit],
        after: frozenset[Circuit],
        dark: frozenset[Circuit],
        acknowledged_s: float,
    ) -> StateMismatch:
        """What differs, as an error. A circuit that the read-back lacks is not also dark."""
        missing, unexpected = sorted(wanted - after), sorted(after - wanted)
        unlit = sorted(dark & after)
        elapsed_s = now_s() - acknowledged_s
        parts = []
        if missing:
            parts.append(f"{_listed(missing)} missing in the read-back")
        if unexpected:
            parts.append(f"{_listed(unexpected)} there although not asked for")
        if unlit:
            parts.append(f"no light through {_listed(unlit)}")
        return StateMismatch(
            f"switch {self.name}: {elapsed_s:.3g} s after the acknowledgement, {'; '.join(parts)}",
            device=self.name,
            operation="apply",
            deadline_s=self.light_deadline_s,
            elapsed_s=elapsed_s,
            last_state=f"acknowledged; {len(after)} circuits, {len(unlit)} of them dark",
            remedy="look at the fibres and transceivers of these ports"
            if unlit
            else "read the switch back; it has acknowledged what it did not do",
            missing=[str(c) for c in missing],
            unexpected=[str(c) for c in unexpected],
            dark=[str(c) for c in unlit],
        )


def check_target(
    switch: str,
    target: Collection[Circuit],
    adding: Collection[Circuit],
    ports: Mapping[Port, PortInfo],
) -> None:
    """Refuse an impossible target.

    A disabled or failed port is refused only where a circuit would be *added* there: what
    exists already can be kept.

    :raises DeviceRefused: with every fault, not only the first.
    """
    uses = Counter(port for circuit in target for port in (circuit.ingress, circuit.egress))
    faults = [f"port {port} is used twice" for port, n in uses.items() if n > 1]
    for circuit in adding:
        for port, wrong, why in (
            (circuit.ingress, PortDirection.EGRESS, "no light can enter there"),
            (circuit.egress, PortDirection.INGRESS, "no light can leave there"),
        ):
            info = ports.get(port)
            if info is None:
                faults.append(f"port {port} does not exist")
            elif info.state is not PortState.ENABLED:
                faults.append(f"port {port} is {info.state}")
            elif info.direction is wrong:
                faults.append(f"port {port} is {info.direction} only: {why}")
    if faults:
        faults = sorted(set(faults))
        raise DeviceRefused(
            f"switch {switch}: {'; '.join(faults)}; nothing was sent",
            device=switch,
            operation="apply",
            remedy=f"choose free, enabled ports out of {_span(ports)}",
            faults=faults,
        )


def _listed(circuits: Sequence[Circuit]) -> str:
    return ", ".join(map(str, circuits))


def _span(ports: Mapping[Port, PortInfo]) -> str:
    names = list(ports)
    return f"{names[0]} … {names[-1]}" if names else "none"
