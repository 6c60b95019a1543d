"""Twin of a host with GPUs and optical interfaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import trio

from devices.hosts.gpu_host import GpuHostOptions
from devices.mock.channel import Closed
from devices.mock.device import MockDevice
from devices.mock.host_faults import EVENTS, host_event
from devices.mock.interface import Interface
from devices.mock.machine import Machine
from devices.mock.process import Orphan, RemoteProcess, RunningProcess
from testbed.errors import DeviceLost, DeviceRefused
from testbed.hal.capabilities import Process
from testbed.hal.registry import DriverContext
from testbed.hal.types import (
    Carrier,
    CommandResult,
    FaultSpec,
    GpuError,
    GpuState,
    HostHealth,
    Identity,
    NicState,
    ProcessInfo,
)
from testbed.timing.alarm import sleep

Result = TypeVar("Result")


class MockGpuHost(MockDevice):
    """A host of the simulated world, as seen over its management connection.

    A host without power answers nothing: an operation waits until its caller's deadline, or
    until the host has booted. One that is under way when the host dies fails only when the
    host is back and resets the old connection.

    :ivar machine: the host itself.
    """

    KINDS = EVENTS

    def __init__(self, name: str, options: GpuHostOptions, context: DriverContext) -> None:
        super().__init__(name, context, options.timing.command)
        self.options = options
        self.machine = Machine(name, options, self.world)
        self.world.add_machine(self.machine)
        self._files: dict[str, bytes] = {}

    def identity(self) -> Identity:
        return Identity("testbed", f"mock host, {self.options.gpus} GPU", self.name)

    async def reachable(self) -> None:
        if not self.machine.running:
            await self.machine.until_reachable()

    # --- Host ------------------------------------------------------------------------------

    async def run(self, argv: Sequence[str], *, stdin: str = "") -> CommandResult:
        """Run a command to its end."""
        process = await self.exchange("run", lambda: self._start(argv, "", {}))
        for line in stdin.splitlines():
            process.feed(line)
        process.close_input()
        lines = []
        try:
            while True:
                lines.append(await process.output.get())
        except Closed:
            pass
        except trio.Cancelled:
            process.terminate(1)  # the end of the session hangs up on the command
            raise
        if process.status is None:
            raise DeviceLost(
                f"host {self.name} has booted while {argv[0]} was running",
                device=self.name,
                operation="run",
                last_state="rebooted",
            )
        return CommandResult(
            tuple(argv),
            process.status,
            "".join(f"{line}\n" for line in lines),
            "".join(f"{line}\n" for line in process.error_lines),
        )

    async def spawn(
        self, argv: Sequence[str], *, tag: str, env: Mapping[str, str] | None = None
    ) -> Process:
        """Start a process that goes on by itself."""
        process = await self.exchange("spawn", lambda: self._start(argv, tag, env or {}))
        return RemoteProcess(process, self.machine)

    def _start(self, argv: Sequence[str], tag: str, env: Mapping[str, str]) -> RunningProcess:
        if not argv:
            raise DeviceRefused(
                f"host {self.name}: an empty command", device=self.name, operation="spawn"
            )
        return self.machine.start(argv, tag, env)

    async def put(self, local: Path, remote: str) -> None:
        """Copy a file to the host; the files of a twin live in memory."""
        content = await trio.Path(local).read_bytes()

        def write() -> None:
            self._files[remote] = content

        def write_half() -> None:
            self._files[remote] = content[: len(content) // 2]

        await self.exchange("put", write, half=write_half, lie=lambda: None)

    async def get(self, remote: str, local: Path) -> None:
        """Copy a file from the host. :raises DeviceRefused: when there is none."""

        def read() -> bytes:
            if remote not in self._files:
                raise DeviceRefused(
                    f"host {self.name}: {remote}: no such file", device=self.name, operation="get"
                )
            return self._files[remote]

        await trio.Path(local).write_bytes(await self.exchange("get", read))

    async def health(self) -> HostHealth:
        return await self.exchange(
            "health", lambda: HostHealth(self.machine.boot_id, self.machine.uptime_s)
        )

    async def processes(self, tag: str | None = None) -> Sequence[ProcessInfo]:
        def look() -> Sequence[ProcessInfo]:
            alive: list[RunningProcess | Orphan] = [
                *self.machine.orphans.values(),
                *self.machine.processes.values(),
            ]
            return tuple(
                ProcessInfo(p.pid, p.argv, p.tag) for p in alive if p.tag and tag in (None, p.tag)
            )

        return await self.exchange("processes", look)

    async def kill(self, tag: str) -> int:
        return await self.exchange("kill", lambda: self.machine.kill(tag), lie=lambda: 0)

    # --- GpuHost ---------------------------------------------------------------------------

    async def gpus(self) -> Sequence[GpuState]:
        return await self.exchange("gpus", self.machine.gpus)

    async def gpu_errors(self) -> Sequence[GpuError]:
        return await self.exchange("gpu_errors", lambda: self.machine.gpu_errors)

    # --- NicHost ---------------------------------------------------------------------------

    async def interfaces(self) -> Mapping[str, NicState]:
        return await self.exchange(
            "interfaces", lambda: {n: i.state() for n, i in self.machine.interfaces.items()}
        )

    async def wait_carrier(self, interface: str, carrier: Carrier) -> NicState:
        """Return when the interface has that carrier; the host sends one line when it does."""
        nic = self._interface(interface, "wait_carrier")
        await self.exchange("wait_carrier", lambda: None)
        boots = self.machine.boots
        while nic.carrier is not carrier or not self.machine.running:
            await nic.changed.park()
            if self.machine.boots != boots:
                raise DeviceLost(
                    f"host {self.name} has booted while its {interface} was watched",
                    device=self.name,
                    operation="wait_carrier",
                    last_state="rebooted",
                )
        state = nic.state()
        await sleep(self.machine.draw_s(self.options.timing.line))
        return state

    async def set_interface(self, interface: str, *, enabled: bool) -> None:
        self._interface(interface, "set_interface")

        def switch() -> None:
            self.machine.set_interface(interface, enabled=enabled)

        await self.exchange("set_interface", switch, lie=lambda: None)

    def _interface(self, name: str, operation: str) -> Interface:
        if name not in self.machine.interfaces:
            raise DeviceRefused(
                f"host {self.name} has no interface {name}",
                device=self.name,
                operation=operation,
                remedy=f"its interfaces are {', '.join(self.machine.interfaces)}",
            )
        return self.machine.interfaces[name]

    # --- faults ----------------------------------------------------------------------------

    def event(self, fault: FaultSpec) -> Callable[[], None]:
        return host_event(self, fault)
