"""Which links a topology or a replacement needs: pure functions over the wiring.

Playbooks name hosts only; interfaces are chosen here. Where a rack has several switches, they
are chosen so that each way of a link stays on one switch: no circuit joins two.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import permutations

from testbed.errors import RackError
from testbed.hal.wiring import Endpoint, Wiring
from testbed.rack.circuits import Link, LinkChange, PlacedCircuit, circuits_of, links_in

__all__ = [
    "Link",
    "LinkChange",
    "PlacedCircuit",
    "circuits_of",
    "links_in",
    "pairs",
    "replacement",
    "ring",
]


def ring(hosts: Sequence[str], wiring: Wiring, busy: Collection[Endpoint] = ()) -> tuple[Link, ...]:
    """A ring over the hosts in the order given, with two free interfaces of each.

    The second free interface of a host goes to the first of the next, unless they end at
    different switches: then those that share one. Two hosts are joined by two links.

    :param busy: interfaces that must not be used.
    :raises RackError: when a host has fewer than two free wired interfaces, naming it, or when
        no choice of interfaces closes the ring.
    """
    if len(set(hosts)) != len(hosts) or len(hosts) < 2:
        raise RackError(
            f"a ring needs two or more different hosts, not {', '.join(hosts) or 'none'}"
        )
    options = [_ways_through(host, wiring, busy) for host in hosts]
    for first in options[0]:
        chosen = _close(first, options, wiring)
        if chosen:
            following = [*chosen[1:], chosen[0]]
            return tuple(
                Link.between(here[1], there[0])
                for here, there in zip(chosen, following, strict=True)
            )
    raise RackError(
        f"no choice of interfaces makes a ring of {', '.join(hosts)}: neighbours end at "
        "different switches",
        remedy="change the order of the hosts, or their wiring",
    )


def pairs(
    wanted: Sequence[tuple[str, str]], wiring: Wiring, busy: Collection[Endpoint] = ()
) -> tuple[Link, ...]:
    """One link for each pair of hosts, in the order given, by their first free interfaces.

    :raises RackError: when a pair has no two free interfaces that one switch can join.
    """
    used = set(busy)
    made = []
    for one, other in wanted:
        if one == other:
            raise RackError(f"a pair needs two different hosts, not {one} twice")
        link = _first_link(one, other, wiring, used)
        used.update(link.ends)
        made.append(link)
    return tuple(made)


def replacement(
    links: Collection[Link],
    failed: str,
    spare: str,
    wiring: Wiring,
    busy: Collection[Endpoint] = (),
) -> LinkChange:
    """The change that puts ``spare`` where ``failed`` was.

    The links of ``failed`` go down, and each of its neighbours is linked to the spare by the
    interface that it used before. A link of the failed host with itself goes down only.

    :param links: the links of the slice as they are.
    :param busy: interfaces in use by others, which the spare must not take.
    :raises RackError: when the failed host has no links, when the spare is its neighbour
        already, or when the spare has too few free interfaces at the right switches.
    """
    if failed == spare:
        raise RackError(f"host {failed} cannot be its own spare")
    torn = [link for link in links if link.touches(failed)]
    if not torn:
        raise RackError(f"host {failed} has no links in this slice; there is nothing to replace")
    if any(link.touches(spare) for link in torn):
        raise RackError(
            f"spare {spare} is linked to {failed} already: it is a member of this slice",
            remedy="name a host that has no part in the slice",
        )
    order = {endpoint: i for i, endpoint in enumerate(wiring.endpoints_of(failed))}
    torn.sort(key=lambda link: (order.get(link.end_at(failed), len(order)), link))
    outward = [link for link in torn if link.peer_of(failed).host != failed]
    free = [e for e in wiring.endpoints_of(spare) if e not in busy]
    add: list[Link] = []
    for link in outward:
        peer = link.peer_of(failed)
        end = next((e for e in free if _joinable(peer, e, wiring)), None)
        if end is None:
            raise RackError(
                f"spare {spare} cannot take the place of {failed}: it has {len(free)} free wired "
                f"interface(s) left for the link to {peer}, none at the same switch, and "
                f"{failed} had {len(outward)} link(s)"
                if free
                else f"spare {spare} has {len(add)} free wired interface(s); {failed} had "
                f"{len(outward)} link(s)",
                remedy="name another spare, or wire more of its interfaces to the switch",
                spare=spare,
                failed=failed,
            )
        free.remove(end)
        add.append(Link.between(peer, end))
    return LinkChange(remove=tuple(torn), add=tuple(add))


def _joinable(one: Endpoint, other: Endpoint, wiring: Wiring) -> bool:
    """Whether circuits of one switch each can carry both ways between two wired interfaces."""
    return (
        wiring.tx(one).switch == wiring.rx(other).switch
        and wiring.tx(other).switch == wiring.rx(one).switch
    )


def _ways_through(
    host: str, wiring: Wiring, busy: Collection[Endpoint]
) -> list[tuple[Endpoint, Endpoint]]:
    """Choices of (interface to the host before, interface to the host after), best first.

    Of interfaces that end at the same switches one choice is enough: they are alike.
    """
    free = [e for e in wiring.endpoints_of(host) if e not in busy]
    if len(free) < 2:
        raise RackError(
            f"host {host} has {len(free)} free wired interface(s), and a ring needs two",
            remedy="choose other hosts, or take links of that host down first",
            host=host,
        )
    alike: dict[tuple[str, ...], tuple[Endpoint, Endpoint]] = {}
    for before, after in permutations(free, 2):
        kind = tuple(f(e).switch for e in (before, after) for f in (wiring.tx, wiring.rx))
        alike.setdefault(kind, (before, after))
    return list(alike.values())


def _close(
    first: tuple[Endpoint, Endpoint],
    options: Sequence[Sequence[tuple[Endpoint, Endpoint]]],
    wiring: Wiring,
) -> list[tuple[Endpoint, Endpoint]] | None:
    """A ring that starts with ``first``, or ``None``: depth first, no dead end entered twice."""
    dead: set[tuple[int, tuple[Endpoint, Endpoint]]] = set()
    chosen = [first]
    untried = [iter(options[1])]
    while untried:
        depth = len(chosen)
        step = next(
            (
                way
                for way in untried[-1]
                if (depth, way) not in dead
                and _joinable(chosen[-1][1], way[0], wiring)
                and (depth + 1 < len(options) or _joinable(way[1], first[0], wiring))
            ),
            None,
        )
        if step is None:
            untried.pop()
            if untried:
                dead.add((depth - 1, chosen.pop()))
            continue
        chosen.append(step)
        if len(chosen) == len(options):
            return chosen
        untried.append(iter(options[len(chosen)]))
    return None


def _first_link(one: str, other: str, wiring: Wiring, used: Collection[Endpoint]) -> Link:
    ends = [[e for e in wiring.endpoints_of(host) if e not in used] for host in (one, other)]
    for near in ends[0]:
        for far in ends[1]:
            if _joinable(near, far, wiring):
                return Link.between(near, far)
    lacking = [host for host, free in zip((one, other), ends, strict=True) if not free]
    raise RackError(
        f"hosts {one} and {other} cannot be linked: "
        + (
            f"no free wired interface is left at {' and '.join(lacking)}"
            if lacking
            else "their free interfaces end at different switches"
        ),
        remedy="choose other hosts, or take links of them down first",
    )
