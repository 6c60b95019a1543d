"""Links between interfaces and the circuits that make them: pure functions over the wiring.

A link is two circuits, one in each direction, of one switch each. Which links a topology or a
replacement needs is computed in :mod:`testbed.rack.links`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from testbed.errors import RackError
from testbed.hal.types import Circuit
from testbed.hal.wiring import Endpoint, SwitchPort, Wiring


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """A full-duplex connection of two interfaces, in canonical order."""

    a: Endpoint
    b: Endpoint

    @classmethod
    def between(cls, one: Endpoint, other: Endpoint) -> Link:
        return cls(one, other) if one <= other else cls(other, one)

    def __str__(self) -> str:
        return f"{self.a}-{self.b}"

    @property
    def ends(self) -> tuple[Endpoint, Endpoint]:
        """Both interfaces."""
        return self.a, self.b

    def touches(self, host: str) -> bool:
        return host in (self.a.host, self.b.host)

    def peer_of(self, host: str) -> Endpoint:
        """The far end, seen from that host."""
        return self.b if self.a.host == host else self.a

    def end_at(self, host: str) -> Endpoint:
        """The near end, seen from that host."""
        return self.a if self.a.host == host else self.b


@dataclass(frozen=True, slots=True, order=True)
class PlacedCircuit:
    """A circuit of a named switch."""

    switch: str
    circuit: Circuit

    def __str__(self) -> str:
        return f"{self.switch}:{self.circuit}"

    @property
    def ports(self) -> tuple[SwitchPort, SwitchPort]:
        """Where the light enters, and where it leaves."""
        return (
            SwitchPort(self.switch, self.circuit.ingress),
            SwitchPort(self.switch, self.circuit.egress),
        )


@dataclass(frozen=True, slots=True)
class LinkChange:
    """Links to take down and links to set up, as one change of the fabric."""

    remove: tuple[Link, ...] = ()
    add: tuple[Link, ...] = ()


def circuits_of(link: Link, wiring: Wiring) -> tuple[PlacedCircuit, PlacedCircuit]:
    """The two circuits that make a link: from ``a`` to ``b``, and back.

    :raises RackError: when an end is not wired, or a way would have to join two switches.
    """
    if link.a == link.b:
        raise RackError(f"link {link}: an interface cannot be linked to itself")
    placed = []
    for source, sink in ((link.a, link.b), (link.b, link.a)):
        try:
            ingress, egress = wiring.tx(source), wiring.rx(sink)
        except KeyError as error:
            raise RackError(
                f"link {link}: interface {error.args[0]} is not wired in both directions",
                remedy="add its two fibres under wiring.fibres of the rack file",
            ) from None
        if ingress.switch != egress.switch:
            raise RackError(
                f"link {link}: {source} sends into {ingress.switch} and {sink} receives from "
                f"{egress.switch}; no circuit joins two switches"
            )
        placed.append(PlacedCircuit(ingress.switch, Circuit(ingress.port, egress.port)))
    return placed[0], placed[1]


def links_in(circuits: Iterable[PlacedCircuit], wiring: Wiring) -> frozenset[Link]:
    """The links that a set of circuits makes; a circuit without its way back makes none."""
    ways = set()
    for placed in circuits:
        entering, leaving = placed.ports
        source, sink = wiring.fibre_at(entering), wiring.fibre_at(leaving)
        if source and sink and source.transmits and not sink.transmits:
            ways.add((source.endpoint, sink.endpoint))
    return frozenset(
        Link(source, sink) for source, sink in ways if source < sink and (sink, source) in ways
    )


def endpoints_in(circuits: Iterable[PlacedCircuit], wiring: Wiring) -> frozenset[Endpoint]:
    """Interfaces that a circuit uses, be it in one direction only."""
    fibres = (wiring.fibre_at(port) for placed in circuits for port in placed.ports)
    return frozenset(fibre.endpoint for fibre in fibres if fibre)
