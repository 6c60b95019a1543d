"""Where light is: transmitter → fibre → circuit of a switch → fibre → receiver.

Levels in dBm, losses in dB. What a switch *says* about its circuits is the twin's business;
here is what the light does. Nothing polls: whoever changes something is told here, and the
receivers that are concerned are told by :class:`Optics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from testbed.hal.types import Port
from testbed.hal.wiring import Endpoint, Fibre, Wiring

DARK_DBM = -60.0
"""What a power meter reads without light."""

FOREIGN_TX_DBM = 0.0
"""Taken for the power of an interface whose host is not part of this session."""


class SwitchLight:
    """The light in and around one switch.

    :ivar into: per port, the fibre that brings light.
    :ivar out_of: per port, the fibre that takes it away.
    """

    def __init__(self, optics: Optics) -> None:
        self._optics = optics
        self.into: dict[Port, Fibre] = {}
        self.out_of: dict[Port, Fibre] = {}
        self._ahead: dict[Port, tuple[Port, float]] = {}
        self._back: dict[Port, Port] = {}
        self._shut: dict[Port, int] = {}  # by how many faults

    def guide(self, remove: Iterable[Port], add: Mapping[Port, tuple[Port, float]]) -> None:
        """Change what the switch does: ``remove`` ingress ports go dark; ``add`` gives, per
        ingress port, the egress port that its light goes to and the loss on the way."""
        ahead, back = self._ahead, self._back
        touched: dict[Port, None] = {}
        for port in remove:
            way = ahead.pop(port, None)
            if way is not None:
                back.pop(way[0], None)
                touched[way[0]] = None
        for port, way in add.items():
            ahead[port] = way
            back[way[0]] = port
            touched[way[0]] = None
        for egress in touched:
            self._tell(egress)

    def goes_to(self, port: Port) -> Port | None:
        """The port that light entering here is guided to, lit or not."""
        way = self._ahead.get(port)
        return None if way is None else way[0]

    def shut(self, port: Port, *, shut: bool) -> None:
        """Close or open the shutter of a port; it is open when each close has been undone."""
        count = self._shut.get(port, 0) + (1 if shut else -1)
        if count > 0:
            self._shut[port] = count
        else:
            self._shut.pop(port, None)
        self.tell_beyond(port)
        self._tell(port)

    def arriving_dbm(self, port: Port) -> float:
        """Power that arrives at a port from its fibre."""
        fibre = self.into.get(port)
        return DARK_DBM if fibre is None else self._optics.through(fibre)

    def leaving_dbm(self, port: Port) -> float:
        """Power that leaves the switch at a port."""
        source = self._back.get(port)
        if source is None or (self._shut and (source in self._shut or port in self._shut)):
            return DARK_DBM
        return max(DARK_DBM, self.arriving_dbm(source) - self._ahead[source][1])

    def tell_beyond(self, port: Port) -> None:
        """The light into this port may have changed."""
        way = self._ahead.get(port)
        if way is not None:
            self._tell(way[0])

    def _tell(self, egress: Port) -> None:
        fibre = self.out_of.get(egress)
        if fibre is not None:
            self._optics.changed(fibre.endpoint)


class Optics:
    """All light of one rack.

    :ivar changed: called with each receiver whose light may have changed.
    """

    def __init__(self, wiring: Wiring, changed: Callable[[Endpoint], None]) -> None:
        self.changed = changed
        self._switches: dict[str, SwitchLight] = {}
        self._tx: dict[Endpoint, Fibre] = {}
        self._rx: dict[Endpoint, Fibre] = {}
        self._cut: set[Fibre] = set()
        self._transmitters: dict[str, Callable[[Endpoint], float]] = {}
        for fibre in wiring.fibres:
            (self._tx if fibre.transmits else self._rx)[fibre.endpoint] = fibre
            switch = self.switch(fibre.switch_port.switch)
            (switch.into if fibre.transmits else switch.out_of)[fibre.switch_port.port] = fibre

    def switch(self, name: str) -> SwitchLight:
        """The light of one switch."""
        found = self._switches.get(name)
        if found is None:
            found = self._switches[name] = SwitchLight(self)
        return found

    def add_transmitters(self, host: str, power_dbm: Callable[[Endpoint], float]) -> None:
        """Have ``power_dbm(endpoint)`` asked for the light of a host's interfaces."""
        self._transmitters[host] = power_dbm

    # --- who changes the light -------------------------------------------------------------

    def cut(self, fibre: Fibre, *, cut: bool) -> None:
        """Cut or mend a fibre."""
        (self._cut.add if cut else self._cut.discard)(fibre)
        if fibre.transmits:
            self._tell_beyond(fibre)
        else:
            self.changed(fibre.endpoint)

    def transmitter_changed(self, endpoint: Endpoint) -> None:
        """The light of this interface has changed."""
        fibre = self._tx.get(endpoint)
        if fibre is not None:
            self._tell_beyond(fibre)

    def _tell_beyond(self, fibre: Fibre) -> None:
        self._switches[fibre.switch_port.switch].tell_beyond(fibre.switch_port.port)

    # --- what light there is ---------------------------------------------------------------

    def through(self, fibre: Fibre) -> float:
        """Power at the far end of a fibre that comes from a transmitter."""
        if self._cut and fibre in self._cut:
            return DARK_DBM
        transmitter = self._transmitters.get(fibre.endpoint.host)
        power = FOREIGN_TX_DBM if transmitter is None else transmitter(fibre.endpoint)
        return power - fibre.loss_db if power > DARK_DBM else DARK_DBM

    def received(self, endpoint: Endpoint) -> float:
        """Power at the receiver of an interface."""
        fibre = self._rx.get(endpoint)
        if fibre is None or (self._cut and fibre in self._cut):
            return DARK_DBM
        where = fibre.switch_port
        return max(DARK_DBM, self._switches[where.switch].leaving_dbm(where.port) - fibre.loss_db)

    def far_end(self, endpoint: Endpoint) -> Endpoint | None:
        """The interface that light from this one is guided to, lit or not."""
        fibre = self._tx.get(endpoint)
        if fibre is None:
            return None
        switch = self._switches[fibre.switch_port.switch]
        egress = switch.goes_to(fibre.switch_port.port)
        sink = None if egress is None else switch.out_of.get(egress)
        return None if sink is None else sink.endpoint

    # --- fibres ----------------------------------------------------------------------------

    def fibres_of(self, endpoint: Endpoint) -> tuple[Fibre, ...]:
        """The fibres of an interface, from its transmitter first."""
        return tuple(f for f in (self._tx.get(endpoint), self._rx.get(endpoint)) if f)

    def fibres_at(self, switch: str, port: Port) -> tuple[Fibre, ...]:
        """The fibres in a port of a switch."""
        light = self.switch(switch)
        return tuple(f for f in (light.into.get(port), light.out_of.get(port)) if f)
