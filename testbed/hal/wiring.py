"""How a rack is wired: which interface ends at which switch port, which outlet feeds which host.

Plain data, built from the rack file by :mod:`testbed.rack` and handed to drivers, so that the
twins of one rack can share one simulated world.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from testbed.hal.types import Port


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """A data interface of a host: ``host0.p1``."""

    host: str
    interface: str

    def __str__(self) -> str:
        return f"{self.host}.{self.interface}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Read ``host.interface``. :raises ValueError: for any other form."""
        host, dot, interface = text.partition(".")
        if not (host and dot and interface):
            raise ValueError(f"{text!r} is no interface; write host.interface, as host0.p0")
        return cls(host, interface)


@dataclass(frozen=True, slots=True, order=True)
class SwitchPort:
    """A port of a named switch: ``mesh0.12``."""

    switch: str
    port: Port

    def __str__(self) -> str:
        return f"{self.switch}.{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class OutletRef:
    """An outlet of a named power controller: ``pdu0.1``."""

    controller: str
    outlet: str

    def __str__(self) -> str:
        return f"{self.controller}.{self.outlet}"


@dataclass(frozen=True, slots=True)
class Fibre:
    """One strand, one direction: from a transmitter into a switch, or from a switch to a receiver.

    ``transmits`` is true when the light goes from the interface into the switch.
    """

    endpoint: Endpoint
    switch_port: SwitchPort
    transmits: bool
    loss_db: float = 0.5


@dataclass(frozen=True, slots=True)
class Feed:
    """An outlet that feeds a host. A host runs while any of its feeds is on."""

    outlet: OutletRef
    host: str


@dataclass(frozen=True)
class Wiring:
    """All fibres and feeds of a rack, with the look-ups that everybody needs."""

    fibres: tuple[Fibre, ...] = ()
    feeds: tuple[Feed, ...] = ()

    @cached_property
    def _tx(self) -> dict[Endpoint, SwitchPort]:
        return {f.endpoint: f.switch_port for f in self.fibres if f.transmits}

    @cached_property
    def _rx(self) -> dict[Endpoint, SwitchPort]:
        return {f.endpoint: f.switch_port for f in self.fibres if not f.transmits}

    @cached_property
    def _by_port(self) -> dict[SwitchPort, Fibre]:
        return {f.switch_port: f for f in self.fibres}

    def tx(self, endpoint: Endpoint) -> SwitchPort:
        """Where light from this interface enters a switch. :raises KeyError: when not wired."""
        return self._tx[endpoint]

    def rx(self, endpoint: Endpoint) -> SwitchPort:
        """Where light for this interface leaves a switch. :raises KeyError: when not wired."""
        return self._rx[endpoint]

    def fibre_at(self, port: SwitchPort) -> Fibre | None:
        """The fibre plugged into that port, if any."""
        return self._by_port.get(port)

    @cached_property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Interfaces that are wired in both directions, in the order of the rack file."""
        return tuple(e for e in self._tx if e in self._rx)

    def endpoints_of(self, host: str) -> tuple[Endpoint, ...]:
        return tuple(e for e in self.endpoints if e.host == host)

    def feeds_of(self, host: str) -> tuple[OutletRef, ...]:
        return tuple(f.outlet for f in self.feeds if f.host == host)

    def hosts_fed_by(self, outlet: OutletRef) -> tuple[str, ...]:
        return tuple(f.host for f in self.feeds if f.outlet == outlet)

    def switches(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f.switch_port.switch for f in self.fibres))

    @classmethod
    def of(cls, fibres: Iterable[Fibre], feeds: Iterable[Feed]) -> Wiring:
        return cls(tuple(fibres), tuple(feeds))
