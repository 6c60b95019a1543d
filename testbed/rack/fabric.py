"""All switches of a rack as one: links between host interfaces, set up and taken down.

A change of links becomes one ``apply`` per switch, all switches in parallel. Across switches it
is all or nothing as far as that can be had: every target is checked before anything is sent to
any switch, and when a switch fails nevertheless, those that have changed are put back to what
was read from them before. The switch that failed is left alone: its state is unknown until it
is read back, and commanding it again would spend a second deadline and hide the evidence.
Bringing it to its safe state is the cleanup's part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

import trio

from testbed.errors import RackError, TestbedError
from testbed.hal.apply import check_target
from testbed.hal.capabilities import NicHost, OpticalSwitch
from testbed.hal.together import gather, settle
from testbed.hal.types import ApplyReport, Circuit
from testbed.rack.carriers import await_links
from testbed.rack.circuits import (
    Link,
    PlacedCircuit,
    circuits_of,
    endpoints_in,
    links_in,
)
from testbed.rack.links import replacement
from testbed.rack.rack import Rack
from testbed.timing.marks import Timeline

ROLLBACK_S = 10.0
"""Time for putting back the switches that changed when another one failed, in seconds."""

LINK_UP_S = 10.0
"""Time for the carriers of both ends after the light is verified, in seconds."""

SENT, ACKNOWLEDGED, VERIFIED = "fabric.sent", "fabric.acknowledged", "fabric.verified"
LINK_UP = "fabric.link-up"
FABRIC_MARKS = (SENT, ACKNOWLEDGED, VERIFIED, LINK_UP)


@dataclass(frozen=True, slots=True)
class FabricReport:
    """What a change of the fabric did, with its instants.

    :param added: links that exist now and did not before.
    :param removed: links that existed before and do not now.
    :param circuits: what each switch did, by its name; those with nothing to do are left out.
    :param sent_s: the first command of any switch, on :func:`testbed.timing.clock.now_s`.
    :param acknowledged_s: the last acknowledgement.
    :param verified_s: the last read-back, with light where a switch can see it.
    :param link_up_s: when the last interface reported its carrier; ``None`` when it was not
        waited for, or when a host cannot tell. The others are ``None`` when nothing was to do.
    """

    added: tuple[Link, ...] = ()
    removed: tuple[Link, ...] = ()
    circuits: Mapping[str, ApplyReport] = field(default_factory=dict)
    sent_s: float | None = None
    acknowledged_s: float | None = None
    verified_s: float | None = None
    link_up_s: float | None = None

    @property
    def changed(self) -> bool:
        return self.sent_s is not None

    @property
    def circuits_added(self) -> int:
        return sum(len(report.added) for report in self.circuits.values())

    @property
    def circuits_removed(self) -> int:
        return sum(len(report.removed) for report in self.circuits.values())


class SwitchFabric:
    """The fabric of a rack over its switches.

    :param switch_of: the switch of that name.
    :param nic_of: the interfaces of that host; ``None`` when it cannot tell their state.
    :param timeline: where marks go.
    :param link_up_s: time for the carriers of both ends after the light is verified, in seconds.
    """

    def __init__(
        self,
        rack: Rack,
        switch_of: Callable[[str], OpticalSwitch],
        nic_of: Callable[[str], NicHost | None],
        timeline: Timeline,
        *,
        link_up_s: float = LINK_UP_S,
    ) -> None:
        self.rack = rack
        self._switch_of = switch_of
        self._nic_of = nic_of
        self._timeline = timeline
        self._link_up_s = link_up_s
        # Targets are computed from what is read: two changes of one switch must not interleave.
        self._locks = {name: trio.Lock() for name in rack.wiring.switches()}

    async def circuits(self) -> frozenset[PlacedCircuit]:
        """All circuits of all switches, read back from them."""
        found = await self._read(tuple(self._locks))
        return _placed(found)

    async def links(self) -> frozenset[Link]:
        """Links that exist now, read back from the switches."""
        return links_in(await self.circuits(), self.rack.wiring)

    async def change(
        self,
        *,
        add: Sequence[Link] = (),
        remove: Sequence[Link] = (),
        wait_link_up: bool = True,
        mark: bool = True,
    ) -> FabricReport:
        """Set up and take down links in one ``apply`` per switch, all switches in parallel.

        Links to add that exist and links to remove that do not are no work. Circuits that
        belong to no link, and links that are not named, stay as they are. When nothing is to
        do, nothing is sent and no mark is set.

        :raises RackError: when a link cannot be made by this wiring, or needs a port that a
            circuit which stays is using; nothing was sent.
        :raises DeviceError: of the switch that failed, and then no mark is set; its fields
            ``rolled_back`` and ``not_rolled_back`` name the other switches that had changed.
            Or of a host whose carrier does not come: then the circuits are there.
        """
        both = sorted(set(add) & set(remove))
        if both:
            raise RackError(f"link {both[0]} is to be set up and taken down in one change")
        wanted = {c: link for link in add for c in circuits_of(link, self.rack.wiring)}
        doomed = {c for link in remove for c in circuits_of(link, self.rack.wiring)}
        involved = {c.switch for c in wanted} | {c.switch for c in doomed}
        switches = tuple(name for name in self._locks if name in involved)
        async with AsyncExitStack() as stack:
            for name in switches:  # always in the order of the rack: no two wait for each other
                await stack.enter_async_context(self._locks[name])
            before = await self._read(switches)
            existing = _placed(before)
            kept = existing - (doomed - wanted.keys())
            self._refuse_conflicts(wanted, kept)
            targets = {
                name: frozenset(c.circuit for c in kept | wanted.keys() if c.switch == name)
                for name in switches
            }
            changing = [name for name in switches if targets[name] != before[name]]
            if len(changing) > 1:
                await self._check_all(changing, targets, before)
            reports = await self._apply_all(changing, targets, before)
        report = self._report(existing, add, remove, reports)
        if report.changed and mark:
            self._mark(SENT, report.sent_s, report)
            self._mark(ACKNOWLEDGED, report.acknowledged_s, report)
            self._mark(VERIFIED, report.verified_s, report)
        if not (report.added and wait_link_up):
            return report
        up_s = await await_links(report.added, self._nic_of, within_s=self._link_up_s)
        if up_s is None:
            return report
        if mark:
            self._mark(LINK_UP, up_s, report)
        return _with_link_up(report, up_s)

    async def replace(self, failed: str, spare: str, *, within: Sequence[str]) -> FabricReport:
        """Put the spare where the failed host was in the slice of the hosts ``within``.

        Links of the failed host to hosts outside the slice, and links of everybody else, stay.
        What the spare has in use, even in one direction, is left alone.

        :raises RackError: when the spare cannot take the place; nothing was sent.
        """
        circuits = await self.circuits()
        members = {*within, failed}
        links = links_in(circuits, self.rack.wiring)
        change = replacement(
            [link for link in links if link.a.host in members and link.b.host in members],
            failed,
            spare,
            self.rack.wiring,
            busy=endpoints_in(circuits, self.rack.wiring),
        )
        return await self.change(add=change.add, remove=change.remove)

    # --- the parts of a change -------------------------------------------------------------

    async def _read(self, switches: Sequence[str]) -> dict[str, frozenset[Circuit]]:
        return await gather({name: self._switch_of(name).circuits for name in switches})

    def _refuse_conflicts(
        self, wanted: Mapping[PlacedCircuit, Link], kept: Collection[PlacedCircuit]
    ) -> None:
        """Refuse two uses of one port, in the words of links."""
        users = {port: circuit for circuit in kept for port in circuit.ports}
        faults: dict[str, None] = {}  # a set that keeps its order
        for circuit, link in wanted.items():
            for port in circuit.ports:
                user = users.setdefault(port, circuit)
                if user != circuit:
                    other = wanted.get(user) or self._link_of(user, kept)
                    what = f"link {other}" if other else f"circuit {user}"
                    faults[f"link {link} needs port {port}, which {what} uses"] = None
        if faults:
            raise RackError(
                "; ".join(faults) + "; nothing was sent",
                remedy="take that down first, or choose other interfaces",
                faults=list(faults),
            )

    def _link_of(self, circuit: PlacedCircuit, among: Collection[PlacedCircuit]) -> Link | None:
        for link in sorted(links_in(among, self.rack.wiring)):
            if circuit in circuits_of(link, self.rack.wiring):
                return link
        return None

    async def _check_all(
        self,
        switches: Sequence[str],
        targets: Mapping[str, frozenset[Circuit]],
        before: Mapping[str, frozenset[Circuit]],
    ) -> None:
        """Find what one of several switches would refuse before any of them is commanded."""
        ports = await gather({name: self._switch_of(name).ports for name in switches})
        for name in switches:
            check_target(name, targets[name], targets[name] - before[name], ports[name])

    async def _apply_all(
        self,
        switches: Sequence[str],
        targets: Mapping[str, frozenset[Circuit]],
        before: Mapping[str, frozenset[Circuit]],
    ) -> dict[str, ApplyReport]:
        if not switches:
            return {}
        reports, errors = await settle(
            {name: partial(self._switch_of(name).apply, targets[name]) for name in switches}
        )
        if errors:
            await self._roll_back(reports, errors, before)
        return reports

    async def _roll_back(
        self,
        reports: Mapping[str, ApplyReport],
        errors: Mapping[str, TestbedError],
        before: Mapping[str, frozenset[Circuit]],
    ) -> None:
        """Put back the switches that changed, then raise the error of the first that failed."""
        changed = [name for name, report in reports.items() if report.changed]
        undone: dict[str, ApplyReport] = {}
        if changed:
            with trio.move_on_after(ROLLBACK_S):
                undone, _ = await settle(
                    {name: partial(self._switch_of(name).apply, before[name]) for name in changed}
                )
        failed, error = next(iter(errors.items()))
        left = [name for name in changed if name not in undone]
        story = [f"; switch {name} failed too: {errors[name].message}" for name in errors]
        story[0] = ""
        if undone:
            story.append(f"; put back as before: {', '.join(undone)}")
        if left:
            story.append(f"; changed, and could not be put back: {', '.join(left)}")
        error.message += "".join(story)
        error.fields.update(
            failed=list(errors), rolled_back=list(undone), not_rolled_back=left, switch=failed
        )
        raise error

    def _report(
        self,
        existing: Collection[PlacedCircuit],
        add: Sequence[Link],
        remove: Sequence[Link],
        reports: Mapping[str, ApplyReport],
    ) -> FabricReport:
        def there(link: Link) -> bool:
            return all(c in existing for c in circuits_of(link, self.rack.wiring))

        sent = [r.sent_s for r in reports.values() if r.sent_s is not None]
        acknowledged = [r.acknowledged_s for r in reports.values() if r.acknowledged_s is not None]
        verified = [r.verified_s for r in reports.values() if r.verified_s is not None]
        return FabricReport(
            added=tuple(dict.fromkeys(link for link in add if not there(link))),
            removed=tuple(dict.fromkeys(link for link in remove if there(link))),
            circuits=dict(reports),
            sent_s=min(sent, default=None),
            acknowledged_s=max(acknowledged, default=None),
            verified_s=max(verified, default=None),
        )

    def _mark(self, name: str, at_s: float | None, report: FabricReport) -> None:
        self._timeline.mark(
            name,
            at_s=at_s,
            circuits_added=report.circuits_added,
            circuits_removed=report.circuits_removed,
        )


def _placed(found: Mapping[str, Collection[Circuit]]) -> frozenset[PlacedCircuit]:
    return frozenset(PlacedCircuit(name, c) for name, circuits in found.items() for c in circuits)


def _with_link_up(report: FabricReport, up_s: float) -> FabricReport:
    return FabricReport(
        report.added,
        report.removed,
        report.circuits,
        report.sent_s,
        report.acknowledged_s,
        report.verified_s,
        up_s,
    )
