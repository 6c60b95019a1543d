"""A data interface of a simulated host: light makes a carrier after a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from devices.mock.optics import DARK_DBM
from devices.mock.timers import Timer
from testbed.hal.types import Carrier, NicState
from testbed.hal.wiring import Endpoint

if TYPE_CHECKING:
    from devices.mock.machine import Machine


class Interface:
    """One transmitter and one receiver.

    The carrier comes up when the receiver has had enough light for the link-up time of the
    model, and goes down with the light: a receiver reports loss of signal within
    microseconds, which is below everything else that is modelled here.
    """

    def __init__(self, machine: Machine, name: str) -> None:
        self._machine = machine
        self.endpoint = Endpoint(machine.name, name)
        self.enabled = True
        self.carrier = Carrier.DOWN
        self.changed = trio.lowlevel.ParkingLot()
        self._coming_up: Timer | None = None

    @property
    def transmits(self) -> bool:
        """Whether its laser is on."""
        return self.enabled and self._machine.running

    def state(self) -> NicState:
        """What the host tells of this interface."""
        up = self.carrier is Carrier.UP
        return NicState(
            interface=self.endpoint.interface,
            enabled=self.enabled,
            carrier=self.carrier,
            rate_bps=self._machine.options.line_rate if up else 0.0,
            rx_power_dbm=round(self._machine.world.optics.received(self.endpoint), 2),
        )

    def update(self, *, at_once: bool = False) -> None:
        """Look at the light again, since something has changed.

        :param at_once: the link came up before this session began.
        """
        power = self._machine.world.optics.received(self.endpoint)
        lit = self.transmits and power > DARK_DBM and power >= self._machine.options.rx_sensitivity
        if not lit:
            if self._coming_up is not None:
                self._coming_up.cancel()
                self._coming_up = None
            self._set(Carrier.DOWN)
        elif at_once:
            self._set(Carrier.UP)
        elif self.carrier is Carrier.DOWN and self._coming_up is None:
            delay_s = self._machine.draw_s(self._machine.options.timing.link_up)
            self._coming_up = self._machine.world.timers.after(delay_s, self._come_up)

    def _come_up(self) -> None:
        self._coming_up = None
        self._set(Carrier.UP)

    def _set(self, carrier: Carrier) -> None:
        if self.carrier is carrier:
            return
        self.carrier = carrier
        self.changed.unpark_all()
        self._machine.links_changed()
