"""Tasks on the fabric: links between hosts, set up, taken down, checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from functools import partial
from typing import Annotated, Any

from pydantic import Field, model_validator

from testbed.errors import TaskFailed
from testbed.hal.capabilities import OpticalSwitch
from testbed.hal.together import settle
from testbed.hal.wiring import Endpoint, Wiring
from testbed.playbook.args import DeviceName, HostName, InterfaceName
from testbed.playbook.task import (
    PlanContext,
    TaskArgs,
    TaskContext,
    TaskPlan,
    TaskResult,
    TaskSpec,
)
from testbed.rack.circuits import Link, circuits_of
from testbed.rack.fabric import FABRIC_MARKS, LINK_UP_S, FabricReport
from testbed.rack.links import pairs, ring

Ring = Annotated[tuple[HostName, ...], Field(min_length=2)]


class TopologyArgs(TaskArgs):
    """Links by exactly one of three ways to name them.

    :ivar ring: hosts, each linked to the next and the last to the first.
    :ivar pairs: pairs of hosts, one link each; interfaces are chosen.
    :ivar links: pairs of interfaces.
    """

    ring: Ring | None = None
    pairs: tuple[tuple[HostName, HostName], ...] | None = None
    links: tuple[tuple[InterfaceName, InterfaceName], ...] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> TopologyArgs:
        given = [name for name in ("ring", "pairs", "links") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of ring, pairs and links, not {' and '.join(given) or 'none'}"
            )
        return self

    def hosts(self) -> tuple[str, ...]:
        """Hosts that take part, each once, in the order given."""
        if self.ring is not None:
            return tuple(dict.fromkeys(self.ring))
        if self.pairs is not None:
            return tuple(dict.fromkeys(host for pair in self.pairs for host in pair))
        return tuple(
            dict.fromkeys(Endpoint.parse(end).host for pair in self.links or () for end in pair)
        )

    def wanted(self, wiring: Wiring, busy: Collection[Endpoint]) -> tuple[Link, ...]:
        """The links, with interfaces that are not ``busy`` where they are to be chosen."""
        if self.ring is not None:
            return ring(self.ring, wiring, busy)
        if self.pairs is not None:
            return pairs(self.pairs, wiring, busy)
        return _explicit(self.links or ())


class ConnectArgs(TopologyArgs):
    """Arguments of ``fabric.connect``.

    :ivar replace: take down whatever other links of these hosts are in the way. By default
        only links among the named hosts themselves give way to the topology.
    :ivar wait_link_up: wait until the interfaces at both ends report a carrier.
    """

    replace: bool = False
    wait_link_up: bool = True

    def change(
        self, existing: Collection[Link], wiring: Wiring
    ) -> tuple[tuple[Link, ...], tuple[Link, ...]]:
        """Links of the topology, and links that are in its way."""
        hosts = frozenset(self.hosts())
        yielding = {
            link
            for link in existing
            if (
                any(end.host in hosts for end in link.ends)
                if self.replace
                else all(end.host in hosts for end in link.ends)
            )
        }
        busy = {end for link in existing if link not in yielding for end in link.ends}
        wanted = self.wanted(wiring, busy)
        needed = {end for link in wanted for end in link.ends}
        in_the_way = sorted(
            link
            for link in yielding
            if link not in wanted and any(end in needed for end in link.ends)
        )
        return wanted, tuple(in_the_way)


async def connect(context: TaskContext, args: ConnectArgs) -> TaskResult:
    """Set up the links of a topology; those that exist already are left as they are."""
    existing = await context.fabric.links()
    wanted, in_the_way = args.change(existing, context.rack.wiring)
    report: FabricReport = await context.fabric.change(
        add=wanted, remove=in_the_way, wait_link_up=args.wait_link_up
    )
    return {"links": [str(link) for link in wanted], **_record(report)}


def _plan_connect(context: PlanContext, args: ConnectArgs) -> TaskPlan:
    wiring = context.rack.wiring
    existing = frozenset(context.links)
    wanted, in_the_way = args.change(existing, wiring)
    added = [link for link in wanted if link not in existing]
    context.links.difference_update(in_the_way)
    context.links.update(wanted)
    return TaskPlan(
        devices=(*_switches((*wanted, *in_the_way), wiring), *args.hosts()),
        changes=(*_lines("down", in_the_way, wiring), *_lines("up", added, wiring)),
        estimate_s=1.0 if added or in_the_way else 0.0,
        nested_deadlines_s={"link-up": LINK_UP_S} if args.wait_link_up else {},
    )


class DisconnectArgs(TaskArgs):
    """Arguments of ``fabric.disconnect``: the links between given interfaces, or all links of
    given hosts."""

    links: tuple[tuple[InterfaceName, InterfaceName], ...] = ()
    hosts: tuple[HostName, ...] = ()

    @model_validator(mode="after")
    def _something(self) -> DisconnectArgs:
        if not self.links and not self.hosts:
            raise ValueError("name links or hosts")
        return self

    def doomed(self, existing: Iterable[Link]) -> list[Link]:
        """Those of the existing links that are named."""
        named = set(_explicit(self.links))
        return sorted(
            link
            for link in existing
            if link in named or any(link.touches(host) for host in self.hosts)
        )


async def disconnect(context: TaskContext, args: DisconnectArgs) -> TaskResult:
    """Take links down; those that do not exist are no work."""
    doomed = args.doomed(await context.fabric.links())
    report: FabricReport = await context.fabric.change(remove=doomed)
    return _record(report)


def _plan_disconnect(context: PlanContext, args: DisconnectArgs) -> TaskPlan:
    doomed = args.doomed(context.links)
    context.links.difference_update(doomed)
    wiring = context.rack.wiring
    return TaskPlan(
        devices=_switches(doomed, wiring),
        changes=tuple(_lines("down", doomed, wiring)),
        estimate_s=0.5 if doomed else 0.0,
    )


class ClearArgs(TaskArgs):
    """Arguments of ``fabric.clear``.

    :ivar switches: switches to clear; all that are wired when none is named.
    """

    switches: tuple[DeviceName, ...] = ()


async def clear(context: TaskContext, args: ClearArgs) -> TaskResult:
    """Take down every circuit of the switches, links and loose ends alike, in parallel."""
    switches = args.switches or context.rack.wiring.switches()
    works = {name: partial(context.device(name, OpticalSwitch).apply, ()) for name in switches}
    reports, errors = await settle(works)
    for error in errors.values():
        error.fields["failed"] = list(errors)
        raise error
    return {"circuits_removed": sum(len(report.removed) for report in reports.values())}


def _plan_clear(context: PlanContext, args: ClearArgs) -> TaskPlan:
    wiring = context.rack.wiring
    switches = args.switches or wiring.switches()
    doomed = [
        link
        for link in sorted(context.links)
        if any(c.switch in switches for c in circuits_of(link, wiring))
    ]
    context.links.difference_update(doomed)
    return TaskPlan(
        devices=tuple(switches),
        changes=tuple(f"every circuit of {name} down" for name in switches),
        estimate_s=0.5,
    )


class VerifyArgs(TopologyArgs):
    """Arguments of ``fabric.verify``.

    A ring and pairs are looked for by their hosts, whichever interfaces join them.

    :ivar only: the named hosts may have no other links.
    """

    only: bool = False


async def verify(context: TaskContext, args: VerifyArgs) -> TaskResult:
    """Check, by reading the switches back, that links exist; nothing is changed."""
    found = await context.fabric.links()
    if args.links is not None:
        wanted: Counter[Any] = Counter(_explicit(args.links))
        present: Counter[Any] = Counter(found)
    else:
        joined = args.pairs
        if args.ring is not None:
            joined = tuple(zip(args.ring, (*args.ring[1:], args.ring[0]), strict=True))
        wanted = Counter(_Pair.of(*pair) for pair in joined or ())
        present = Counter(_Pair.of(link.a.host, link.b.host) for link in found)
    named = frozenset(args.hosts())
    missing = sorted((wanted - present).elements())
    surplus = []
    if args.only:
        surplus = sorted(
            link for link in (present - wanted).elements() if not named.isdisjoint(_hosts(link))
        )
    if missing or surplus:
        parts = [f"no link {_joined(missing)}"] if missing else []
        parts += [f"unexpected link {_joined(surplus)}"] if surplus else []
        near = sorted(link for link in found if any(link.touches(host) for host in named))
        raise TaskFailed(
            f"the fabric is not as expected: {'; '.join(parts)} (these hosts have "
            f"{_joined(near) or 'no links'})",
            missing=[str(link) for link in missing],
            unexpected=[str(link) for link in surplus],
            found=[str(link) for link in near],
        )
    return {"links": [str(link) for link in sorted(found)]}


def _plan_verify(context: PlanContext, args: VerifyArgs) -> TaskPlan:
    return TaskPlan(devices=context.rack.wiring.switches(), estimate_s=0.1)


class _Pair(tuple[str, str]):
    """Two hosts in canonical order, with the look of a link."""

    @classmethod
    def of(cls, one: str, other: str) -> _Pair:
        return cls(sorted((one, other)))

    def __str__(self) -> str:
        return "-".join(self)


def _hosts(link: Link | _Pair) -> tuple[str, ...]:
    return tuple(link) if isinstance(link, _Pair) else (link.a.host, link.b.host)


def _joined(links: Iterable[Link | _Pair]) -> str:
    return ", ".join(map(str, links))


def _explicit(links: Iterable[tuple[str, str]]) -> tuple[Link, ...]:
    return tuple(Link.between(Endpoint.parse(a), Endpoint.parse(b)) for a, b in links)


def _switches(links: Iterable[Link], wiring: Wiring) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c.switch for link in links for c in circuits_of(link, wiring)))


def _lines(direction: str, links: Iterable[Link], wiring: Wiring) -> list[str]:
    """Changes of a plan, with the circuits that the wiring gives."""
    return [
        f"link {link} {direction} ({', '.join(map(str, circuits_of(link, wiring)))})"
        for link in links
    ]


def _record(report: FabricReport) -> dict[str, Any]:
    """A report as a task's result; durations in seconds from the first command."""

    def since_sent(instant_s: float | None) -> float | None:
        if report.sent_s is None or instant_s is None:
            return None
        return instant_s - report.sent_s

    return {
        "changed": report.changed,
        "added": [str(link) for link in report.added],
        "removed": [str(link) for link in report.removed],
        "circuits_added": report.circuits_added,
        "circuits_removed": report.circuits_removed,
        "acknowledged_s": since_sent(report.acknowledged_s),
        "verified_s": since_sent(report.verified_s),
        "link_up_s": since_sent(report.link_up_s),
    }


_CHANGE_RESULT: dict[str, type] = {
    "changed": bool,
    "added": list,
    "removed": list,
    "circuits_added": int,
    "circuits_removed": int,
    "acknowledged_s": float,
    "verified_s": float,
    "link_up_s": float,
}

TASKS = [
    TaskSpec(
        "fabric.connect",
        "Set up links between hosts: a ring, pairs, or named interfaces.",
        ConnectArgs,
        connect,
        plan=_plan_connect,
        deadline_s=60.0,
        marks=FABRIC_MARKS,
        result={"links": list, **_CHANGE_RESULT},
    ),
    TaskSpec(
        "fabric.disconnect",
        "Take down named links, or all links of hosts.",
        DisconnectArgs,
        disconnect,
        plan=_plan_disconnect,
        marks=FABRIC_MARKS,
        result=_CHANGE_RESULT,
    ),
    TaskSpec(
        "fabric.clear",
        "Take down every circuit of some or all switches.",
        ClearArgs,
        clear,
        plan=_plan_clear,
        result={"circuits_removed": int},
        short="switches",
    ),
    TaskSpec(
        "fabric.verify",
        "Check that links exist, by reading the switches back.",
        VerifyArgs,
        verify,
        plan=_plan_verify,
        result={"links": list},
    ),
]
