"""A small laboratory for the training job and its recovery: hosts, one switch, and time.

It stands in for the mock devices and the engine, so that these tests need neither; the
playbooks are run on the real ones in ``test_playbooks_run.py``.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from pydantic import BaseModel

from experiments.training.model import train
from testbed.errors import DeviceLost
from testbed.hal.registry import DriverSpec
from testbed.hal.types import (
    Backend,
    Carrier,
    GpuError,
    GpuState,
    HostHealth,
)
from testbed.hal.wiring import Endpoint, Fibre, SwitchPort, Wiring
from testbed.rack.fabric import FabricReport
from testbed.rack.links import Link, replacement
from testbed.rack.rack import DeviceEntry, Rack, SafeState
from testbed.timing.clock import run
from testbed.timing.marks import Timeline

RATE_BPS = 10e9
SWITCHING_S = 0.025
LINK_UP_S = 0.010


class NoOptions(BaseModel):
    """Devices of the laboratory have none."""


class LabProcess:
    """A process as the controller and as its model see it."""

    def __init__(self, lab: Lab, host: str, argv: Sequence[str], pid: int) -> None:
        self.lab, self.host, self.argv, self.pid = lab, host, argv, pid
        self.rng = random.Random(f"{lab.seed}/{host}/{len(lab.processes)}")
        self.stopped = False
        self.status: int | None = None
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self._out, self._lines = trio.open_memory_channel[str](1000)
        self._in, self._commands = trio.open_memory_channel[str](1000)
        self._loss_watches: list[tuple[int, Callable[[str], None]]] = []

    async def run(self) -> None:
        with self.scope:
            self.status = await train(self)
        if self.host not in self.lab.dark_hosts:
            self._out.close()
        self.ended.set()

    # the model's side
    async def emit(self, line: str) -> None:
        if not self.stopped and self.host not in self.lab.dark_hosts:
            await self._out.send(line)

    async def receive(self) -> str:
        return await self._commands.receive()

    def shared(self, key: str, make: Callable[[], Any]) -> Any:
        return self.lab.shared.setdefault(key, make())

    def link_rate_bps(self, peer: str) -> float:
        if {self.host, peer} & self.lab.dark_hosts:
            return 0.0
        hosts = {self.host, peer}
        return RATE_BPS * sum({k.a.host, k.b.host} == hosts for k in self.lab.live_links)

    def reachable(self, peer: str) -> bool:
        return peer not in self.lab.dark_hosts

    def on_peer_loss(
        self, peer_pid: int, peer_host: str, call: Callable[[str], None]
    ) -> Callable[[], None]:
        return self._register(self.lab.loss_watches, (peer_pid, call))

    def on_links_changed(self, call: Callable[[], None]) -> Callable[[], None]:
        return self._register(self.lab.link_watches, call)

    def gpu_errors(self) -> Sequence[GpuError]:
        return self.lab.gpu_faults.get(self.host, [])

    def on_gpu_error(self, call: Callable[[GpuError], None]) -> Callable[[], None]:
        return self._register(self.lab.gpu_watches.setdefault(self.host, []), call)

    @staticmethod
    def _register(where: list[Any], what: Any) -> Callable[[], None]:
        where.append(what)
        return lambda: where.remove(what) if what in where else None

    # the controller's side
    async def lines(self) -> AsyncIterator[str]:
        async for line in self._lines:
            yield line

    async def send_line(self, line: str) -> None:
        self.lab.reach(self.host)
        if self.status is not None:
            raise DeviceLost(f"process {self.pid} is gone", device=self.host)
        await self._in.send(line)

    async def signal(self, number: int) -> None:
        self.lab.reach(self.host)
        self.lab.kill(self)

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.status is not None
        return self.status


@dataclass
class LabSwitch:
    """The power meters of the switch."""

    lab: Lab

    async def port_power_dbm(self, ports: Sequence[str]) -> Mapping[str, float]:
        wiring = self.lab.rack.wiring
        ends = {wiring.tx(end).port: end for end in wiring.endpoints}
        return {p: -60.0 if self.lab.unlit(ends[p]) else -3.0 for p in ports}


@dataclass
class LabHost:
    """Host capability of one simulated machine."""

    lab: Lab
    name: str

    async def spawn(
        self, argv: Sequence[str], *, tag: str, env: Mapping[str, str] | None = None
    ) -> LabProcess:
        self.lab.reach(self.name)
        process = LabProcess(self.lab, self.name, argv, 100 + len(self.lab.processes))
        self.lab.processes.append(process)
        self.lab.nursery.start_soon(process.run)
        return process

    async def health(self) -> HostHealth:
        self.lab.reach(self.name)
        return HostHealth("boot", 1.0)

    async def gpus(self) -> Sequence[GpuState]:
        await trio.sleep(0.001)
        self.lab.reach(self.name)
        sick = self.name in self.lab.gpu_faults
        return [GpuState(0, "GPU-0", "lab", not sick, 40.0, 60.0, 48 << 30)]

    async def wait_carrier(self, interface: str, carrier: Carrier) -> None:
        end = Endpoint(self.name, interface)
        await self.lab.until(lambda: not any(end in k.ends for k in self.lab.live_links))
        if self.name in self.lab.dark_hosts:
            await trio.sleep_forever()

    async def gpu_errors(self) -> Sequence[GpuError]:
        self.lab.reach(self.name)
        return self.lab.gpu_faults.get(self.name, [])


class LabFabric:
    """Links that take time to switch, and then to come up."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    async def links(self) -> frozenset[Link]:
        return frozenset(self.lab.links)

    async def change(
        self, *, add: Sequence[Link] = (), remove: Sequence[Link] = (), **_: Any
    ) -> FabricReport:
        add, remove = [k for k in add if k not in self.lab.links], list(remove)
        if not add and not remove:
            return FabricReport()
        mark = self.lab.timeline.mark
        mark("fabric.sent")
        self.lab.links = [k for k in self.lab.links if k not in remove]
        self.lab.links_changed()
        await trio.sleep(SWITCHING_S)
        mark("fabric.acknowledged")
        self.lab.links += add
        mark("fabric.verified")
        await trio.sleep(LINK_UP_S)
        self.lab.links_changed()
        mark("fabric.link-up")
        return FabricReport(tuple(add), tuple(remove))

    async def replace(self, failed: str, spare: str, *, within: Sequence[str]) -> FabricReport:
        slice_links = [k for k in self.lab.links if {k.a.host, k.b.host} <= set(within)]
        busy = [e for k in self.lab.links for e in (k.a, k.b)]
        change = replacement(slice_links, failed, spare, self.lab.rack.wiring, busy)
        return await self.change(add=change.add, remove=change.remove)


@dataclass
class Lab:
    """The laboratory, and the context of the tasks that run in it."""

    hosts: tuple[str, ...] = tuple(f"host{n}" for n in range(6))
    seed: int = 0
    dark_hosts: set[str] = field(default_factory=set)
    cut: set[Endpoint] = field(default_factory=set)
    gpu_faults: dict[str, list[GpuError]] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    processes: list[LabProcess] = field(default_factory=list)
    shared: dict[str, Any] = field(default_factory=dict)
    loss_watches: list[Any] = field(default_factory=list)
    link_watches: list[Any] = field(default_factory=list)
    gpu_watches: dict[str, list[Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    run_id: str = "lab"
    trial: int = 0
    virtual: bool = True

    def __post_init__(self) -> None:
        self.live_links: list[Link] = []
        self.rng = random.Random(self.seed)
        self.resources: dict[type, Any] = {}
        self.cleanups: list[Callable[[], Awaitable[None]]] = []
        self.fabric = LabFabric(self)
        fibres = [
            Fibre(Endpoint(host, f"p{p}"), SwitchPort("ocs0", f"{4 * n + 2 * p + t}"), bool(t))
            for n, host in enumerate(self.hosts)
            for p in range(2)
            for t in (0, 1)
        ]
        spec = DriverSpec(
            "lab", "host", "", NoOptions, frozenset({"host", "gpu-host", "nic-host"}), {}
        )
        switch = DriverSpec("ocs", "switch", "", NoOptions, frozenset({"optical-power"}), {})
        self.rack = Rack(
            name="lab",
            source="lab",
            text="",
            sha256="",
            devices={
                name: DeviceEntry(name, of, Backend.MOCK, NoOptions())
                for name, of in (*((host, spec) for host in self.hosts), ("ocs0", switch))
            },
            wiring=Wiring.of(fibres, ()),
            safe_state=SafeState(),
        )

    # --- what tasks ask for
    def device(self, name: str, capability: type) -> Any:
        return LabSwitch(self) if name == "ocs0" else LabHost(self, name)

    def mark(self, name: str, **fields: Any) -> Any:
        return self.timeline.mark(name, **fields)

    @contextmanager
    def span(self, name: str, **fields: Any) -> Any:
        with self.timeline.span(name, **fields) as span:
            yield span

    def log(self, message: str, **fields: Any) -> None:
        self.timeline.event("log", message=message)

    def start_soon(self, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        self.nursery.start_soon(work, name=name)

    def add_cleanup(self, name: str, step: Any, *, deadline_s: float = 10.0) -> Any:
        self.cleanups.append(step)
        return lambda: self.cleanups.remove(step)

    def resource(self, kind: type, make: Callable[[], Any]) -> Any:
        if kind not in self.resources:
            self.resources[kind] = make()
        return self.resources[kind]

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait, in virtual time, until something in the laboratory is so."""
        while not holds():  # noqa: ASYNC110 - looks at what has no event
            await trio.sleep(0.0005)

    # --- what happens to hosts
    def reach(self, host: str) -> None:
        if host in self.dark_hosts:
            raise DeviceLost(f"{host} does not answer", device=host)

    def connect(self, *links: Link) -> None:
        self.links += links
        self.links_changed()

    def links_changed(self) -> None:
        self.live_links = [k for k in self.links if not any(map(self.unlit, k.ends))]
        for call in list(self.link_watches):
            call()

    def unlit(self, end: Endpoint) -> bool:
        return end in self.cut or end.host in self.dark_hosts

    def process_on(self, host: str) -> LabProcess:
        return next(p for p in self.processes if p.host == host and p.status is None)

    def kill(self, process: LabProcess) -> None:
        if process.status is None:
            process.status = -9
            process.scope.cancel()
            if process.host not in self.dark_hosts:
                for pid, call in list(self.loss_watches):
                    if pid == process.pid:
                        call("reset")

    def power_off(self, host: str) -> None:
        self.dark_hosts.add(host)
        for process in self.processes:
            if process.host == host and process.status is None:
                process.status = -9
                process.scope.cancel()
        self.links_changed()

    def xid(self, host: str) -> None:
        error = GpuError(0, 79, "GPU has fallen off the bus", trio.current_time())
        self.gpu_faults.setdefault(host, []).append(error)
        for call in list(self.gpu_watches.get(host, ())):
            call(error)

    def fault(self, kind: str, host: str) -> None:
        self.mark("fault.injected", fault=kind, host=host)
        match kind:
            case "process-kill":
                self.kill(self.process_on(host))
            case "power-off":
                self.power_off(host)
            case "gpu-xid":
                self.xid(host)
            case "fibre-cut":
                self.cut.update(self.rack.wiring.endpoints_of(host))
                self.links_changed()
            case "process-hang":
                self.process_on(host).stopped = True
                self.links_changed()

    def run(self, trial: Callable[[Lab], Awaitable[Any]]) -> Any:
        """Run a trial in virtual time, with its cleanup; returns what it returns."""

        async def main() -> Any:
            self.timeline = Timeline(self.events.append)
            async with trio.open_nursery() as self.nursery:
                try:
                    result = await trial(self)
                finally:
                    with trio.CancelScope(shield=True):
                        for step in reversed(self.cleanups):
                            await step()
                    self.nursery.cancel_scope.cancel()
            return result

        return run(main, virtual=True, seed=self.seed)


@pytest.fixture
def make_lab() -> Callable[..., Lab]:
    """Makes laboratories."""
    return Lab
