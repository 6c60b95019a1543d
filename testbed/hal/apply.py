"""Declarative switching, once for all optical switches.

A driver gives four small primitives; :class:`DeclarativeSwitch` makes ``apply`` out of them, so
that every switch, real or simulated, keeps the same promises.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

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
from testbed.timing.clock import now_s

DARK_BELOW_DBM = -50.0
"""A port that reads less is taken for dark."""


class DeclarativeSwitch(abc.ABC):
    """``apply`` from primitives. ``light_poll_s`` is the pause between looks at the light."""

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

        :raises DeviceRefused: for a port conflict, an unknown, disabled or wrong-way port;
            nothing was sent.
        :raises StateMismatch: when the light or the read-back is not as asked.
        """
        wanted = frozenset(target)
        before = await self.circuits()
        remove, add = sorted(before - wanted), sorted(wanted - before)
        await self.check(wanted, changing=add)
        unchanged = len(wanted & before)
        if not remove and not add:
            return ApplyReport(unchanged=unchanged)
        sent_s = now_s()
        await self.send(remove, add)
        acknowledged_s = now_s()
        light_checked = await self._wait_for_light(add)
        after = await self.circuits()
        if after != wanted:
            missing, extra = sorted(wanted - after), sorted(after - wanted)
            raise StateMismatch(
                f"switch {self.name}: read-back differs from what was asked"
                + (f"; missing {', '.join(map(str, missing))}" if missing else "")
                + (f"; unexpected {', '.join(map(str, extra))}" if extra else ""),
                device=self.name,
                operation="apply",
                elapsed_s=now_s() - sent_s,
                last_state=f"{len(after)} circuits",
                missing=[str(c) for c in missing],
                unexpected=[str(c) for c in extra],
            )
        return ApplyReport(
            added=tuple(add),
            removed=tuple(remove),
            unchanged=unchanged,
            sent_s=sent_s,
            acknowledged_s=acknowledged_s,
            verified_s=now_s(),
            light_checked=light_checked,
        )

    async def check(self, target: Collection[Circuit], *, changing: Collection[Circuit]) -> None:
        """Refuse an impossible target before anything is sent.

        A disabled or failed port is refused only where a circuit would be *added* there: what
        exists already can be kept.
        """
        uses = Counter(p for c in target for p in (c.ingress, c.egress))
        faults = [f"port {port} is used twice" for port, n in sorted(uses.items()) if n > 1]
        ports = await self.ports()
        for circuit in sorted(changing):
            ends = (
                (circuit.ingress, PortDirection.EGRESS, "no light can enter"),
                (circuit.egress, PortDirection.INGRESS, "no light can leave"),
            )
            for port, wrong, why in ends:
                info = ports.get(port)
                if info is None:
                    faults.append(f"port {port} does not exist")
                elif info.state is not PortState.ENABLED:
                    faults.append(f"port {port} is {info.state}")
                elif info.direction is wrong:
                    faults.append(f"port {port} is {info.direction}: {why} there")
        if faults:
            raise DeviceRefused(
                f"switch {self.name}: {'; '.join(faults)}; nothing was sent",
                device=self.name,
                operation="apply",
                remedy=f"choose free, enabled ports out of {_span(ports)}",
                faults=faults,
            )

    async def _wait_for_light(self, added: Sequence[Circuit]) -> bool:
        if not added:
            return False
        started_s = now_s()
        while True:
            dark = await self.dark(added)
            if dark is None:
                return False
            if not dark:
                return True
            if now_s() - started_s > self.light_deadline_s:
                raise StateMismatch(
                    f"switch {self.name}: no light through {', '.join(map(str, sorted(dark)))} "
                    f"{self.light_deadline_s:g} s after the acknowledgement",
                    device=self.name,
                    operation="apply",
                    deadline_s=self.light_deadline_s,
                    elapsed_s=now_s() - started_s,
                    last_state="acknowledged, dark",
                    remedy="look at the fibres and transceivers of these ports",
                    dark=[str(c) for c in sorted(dark)],
                )
            await trio.sleep(self.light_poll_s)


def _span(ports: Mapping[Port, PortInfo]) -> str:
    names = list(ports)
    return f"{names[0]} … {names[-1]}" if names else "none"
