"""A small switch and a small power controller, made to misbehave by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import trio

from testbed.errors import DeviceLost
from testbed.hal.apply import DeclarativeSwitch
from testbed.hal.types import (
    Backend,
    Circuit,
    Identity,
    OutletState,
    Port,
    PortDirection,
    PortInfo,
    PortState,
)


class FakeSwitch(DeclarativeSwitch):
    """A switch in memory; counts what is sent to it."""

    def __init__(self, ports: int = 8, *, ingress: int | None = None) -> None:
        self.map = {
            str(n): PortInfo(
                str(n),
                PortDirection.BOTH
                if ingress is None
                else (PortDirection.INGRESS if n < ingress else PortDirection.EGRESS),
            )
            for n in range(ports)
        }
        self.now: set[Circuit] = set()
        self.sent: list[tuple[tuple[Circuit, ...], tuple[Circuit, ...]]] = []
        self.lose: set[Circuit] = set()  # acknowledged, and not done
        self.unlit: set[Circuit] = set()
        self.sees_light = True
        self.send_s = 0.010
        self.light_after_s = 0.0
        self.lit_at_s = 0.0

    @property
    def name(self) -> str:
        return "ocs0"

    def disable(self, port: Port, state: PortState = PortState.DISABLED) -> None:
        self.map[port] = PortInfo(port, self.map[port].direction, state)

    async def ports(self) -> Mapping[Port, PortInfo]:
        return self.map

    async def circuits(self) -> frozenset[Circuit]:
        return frozenset(self.now)

    async def send(self, remove: Sequence[Circuit], add: Sequence[Circuit]) -> None:
        self.sent.append((tuple(remove), tuple(add)))
        await trio.sleep(self.send_s)
        self.now -= set(remove) - self.lose
        self.now |= set(add) - self.lose
        self.lit_at_s = trio.current_time() + self.light_after_s

    async def dark(self, circuits: Sequence[Circuit]) -> frozenset[Circuit] | None:
        if not self.sees_light:
            return None
        if trio.current_time() < self.lit_at_s:
            return frozenset(circuits)
        return frozenset(c for c in circuits if c in self.unlit or c not in self.now)


@dataclass
class FakePower:
    """A power controller in memory. What it reads follows what it does after ``settle_s``."""

    name: str = "pdu0"
    states: dict[str, OutletState] = field(default_factory=dict)
    settle_s: float = 0.0
    unreachable: bool = False
    fails_at: OutletState | None = None  # the connection breaks at that command
    stuck: set[str] = field(default_factory=set)
    stale: bool = False  # reads what was there before the first command, for ever
    log: list[tuple[float, str, str]] = field(default_factory=list)
    backend: Backend = Backend.MOCK

    def __post_init__(self) -> None:
        self._reads = dict(self.states)
        self._reads_from_s: dict[str, float] = {}

    async def open(self) -> Identity:
        return Identity("fake", "power")

    async def close(self) -> None: ...

    async def outlets(self) -> Mapping[str, OutletState]:
        await trio.sleep(0.002)
        if self.unreachable:
            raise DeviceLost(f"{self.name} does not answer", device=self.name)
        now_s = trio.current_time()
        if not self.stale:
            for outlet, from_s in list(self._reads_from_s.items()):
                if now_s >= from_s:
                    self._reads[outlet] = self.states[outlet]
        return dict(self._reads)

    async def switch(self, outlet: str, state: OutletState) -> None:
        await trio.sleep(0.005)
        if self.unreachable or state is self.fails_at:
            raise DeviceLost(f"{self.name} does not answer", device=self.name)
        self.log.append((trio.current_time(), outlet, str(state)))
        if outlet not in self.stuck:
            self.states[outlet] = state
            self._reads_from_s[outlet] = trio.current_time() + self.settle_s


@pytest.fixture
def make_switch() -> Callable[..., FakeSwitch]:
    return FakeSwitch


@pytest.fixture
def make_power() -> Callable[..., FakePower]:
    def make(name: str = "pdu0", outlets: Collection[str] = ("1", "2"), **fields: object):
        return FakePower(name, dict.fromkeys(outlets, OutletState.ON), **fields)

    return make
