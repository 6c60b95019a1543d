"""Devices under contract (TC55: behaviour ships with the driver, one suite for all).

A *lab* is two hosts joined by a switch, fed by a power controller. Every suite runs on every
lab: the mock twins here; emulators, and a laboratory's own rack, are further entries of
``LABS``, with nothing to change in a suite.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from devices.mock.rack import mock_rack
from testbed.hal.registry import driver
from testbed.hal.types import Circuit
from testbed.hal.wiring import Endpoint, Feed, Fibre, OutletRef, SwitchPort, Wiring
from testbed.timing.clock import run

DEADLINE_S = 120.0


@dataclass(frozen=True)
class Lab:
    """Two hosts, ``host`` and ``peer``, with an interface ``p0`` each, that ``link`` joins.

    :ivar link: the two circuits that make a link between the hosts.
    :ivar spare_circuit: one more, between ports without fibres.
    :ivar outlet: the outlet that ``power`` switches; it is what keeps the host alive.
    """

    switch_driver: str
    switch_options: dict[str, Any]
    ports: tuple[str, str, str, str]  # tx and rx of the host, tx and rx of the peer
    spare_circuit: Circuit
    power_driver: str = "pdu"
    outlet: str = "1"

    @property
    def link(self) -> frozenset[Circuit]:
        host_tx, host_rx, peer_tx, peer_rx = self.ports
        return frozenset({Circuit(host_tx, peer_rx), Circuit(peer_tx, host_rx)})

    @property
    def wiring(self) -> Wiring:
        host, peer = Endpoint("host", "p0"), Endpoint("peer", "p0")
        ends = ((host, True), (host, False), (peer, True), (peer, False))
        fibres = tuple(
            Fibre(endpoint, SwitchPort("switch", port), transmits)
            for port, (endpoint, transmits) in zip(self.ports, ends, strict=True)
        )
        feeds = (Feed(OutletRef("power", self.outlet), "host"),)
        return Wiring(fibres, () if self.power_driver == "bmc" else feeds)

    def run(self, scenario: Callable[[Any], Awaitable[None]], *, seed: int = 1) -> None:
        """Run a scenario on the opened devices of this lab."""
        power = {"host": "host"} if self.power_driver == "bmc" else {}
        devices = {
            "switch": (self.switch_driver, self.switch_options),
            "host": ("gpu-host", {"interfaces": ["p0"], "gpus": 2}),
            "peer": ("gpu-host", {"interfaces": ["p0"]}),
            "power": (self.power_driver, power),
        }

        async def main() -> None:
            async with mock_rack(devices, self.wiring, seed=seed) as rack:
                await scenario(rack)

        run(main, virtual=True, seed=seed)


LABS = {
    "mock-piezo": Lab(
        "circuit-switch", {"ports": 16, "ingress": 8}, ("1", "9", "2", "10"), Circuit("5", "13")
    ),
    "mock-mems": Lab(
        "circuit-switch", {"class": "mems", "ports": 8}, ("1", "2", "3", "4"), Circuit("6", "7")
    ),
    # The bench's own ports: server 0 and server 1 by their link a, and two free ones.
    "mock-mesh": Lab("photonic-mesh", {}, ("12", "18", "5", "9"), Circuit("7", "13")),
    "mock-robot-bmc": Lab(
        "circuit-switch",
        {"class": "robotic", "ports": 8},
        ("1", "2", "3", "4"),
        Circuit("6", "7"),
        power_driver="bmc",
        outlet="system",
    ),
}


@pytest.fixture(params=sorted(LABS))
def lab(request: pytest.FixtureRequest) -> Lab:
    return LABS[request.param]


METERED = sorted(
    n for n, lab in LABS.items() if "power-meter" in driver(lab.power_driver).capabilities
)


@pytest.fixture(params=METERED)
def metered_lab(request: pytest.FixtureRequest) -> Lab:
    """A lab whose power controller measures as well."""
    return LABS[request.param]
