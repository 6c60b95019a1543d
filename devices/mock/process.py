"""Processes of simulated hosts: the program's side, and the controller's."""

from __future__ import annotations

import functools
import logging
import random
import signal as signals
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import trio

from devices.mock.channel import Channel, Closed
from devices.mock.programs import COMMANDS, NOT_FOUND
from testbed.errors import DeviceLost, DeviceRefused
from testbed.hal.simulation import program_model
from testbed.hal.types import GpuError
from testbed.timing.alarm import sleep

if TYPE_CHECKING:
    from devices.mock.machine import Machine

Shared = TypeVar("Shared")
_log = logging.getLogger("testbed.mock")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A process that was started in an earlier session: it runs, and nobody reads its output."""

    pid: int
    argv: tuple[str, ...]
    tag: str


class RunningProcess:
    """One process; the :class:`~testbed.hal.simulation.SimulatedProcess` of its program.

    :ivar output: its lines, as they arrive at the controller.
    :ivar error_lines: what it wrote to standard error.
    :ivar status: exit status; ``None`` while it runs, and for ever when its host went away.
    :ivar lost: whether the connection was reset by a host that had booted meanwhile.
    """

    def __init__(
        self,
        machine: Machine,
        pid: int,
        argv: tuple[str, ...],
        tag: str,
        env: Mapping[str, str],
        rng: random.Random,
    ) -> None:
        self._machine = machine
        self.pid = pid
        self.argv: tuple[str, ...] = argv
        self.tag = tag
        self.env = env
        self.rng = rng
        self.output: Channel[str] = Channel()
        self.error_lines: list[str] = []
        self.status: int | None = None
        self.lost = False
        self._input: Channel[str] = Channel()
        self._scope = trio.CancelScope()
        self._alive = True
        self._go_on: trio.Event | None = None
        self._mourners: dict[int, Callable[[str], None]] = {}
        self._watches: list[Callable[[], None]] = []
        self._shared: list[str] = []
        self._model = program_model(argv[0])

    # --- SimulatedProcess ------------------------------------------------------------------

    @property
    def host(self) -> str:
        return self._machine.name

    @property
    def stopped(self) -> bool:
        """Whether it hangs (``SIGSTOP``)."""
        return self._go_on is not None

    async def emit(self, line: str) -> None:
        """Write one line to standard output."""
        await self._while_stopped()
        if self._alive:
            self.output.put(line, self._machine.draw_s(self._machine.options.timing.line))

    async def receive(self) -> str:
        """The next line of standard input. :raises EOFError: when it was closed."""
        try:
            line = await self._input.get()
        except Closed:
            raise EOFError from None
        await self._while_stopped()
        return line

    def shared(self, key: str, make: Callable[[], Shared]) -> Shared:
        """What the processes of this rack agree upon under a key."""
        if key not in self._shared:
            self._shared.append(key)
            return self._machine.world.agree(key, make)
        value = self._machine.world.agree(key, make)
        self._machine.world.disagree(key)
        return value

    def link_rate_bps(self, peer: str) -> float:
        return self._machine.link_rate_bps(peer)

    def reachable(self, peer: str) -> bool:
        machine = self._machine.world.machines.get(peer)
        return machine is not None and machine.running

    def on_peer_loss(
        self, peer_pid: int, peer_host: str, call: Callable[[str], None]
    ) -> Callable[[], None]:
        """See :meth:`testbed.hal.simulation.SimulatedProcess.on_peer_loss`."""
        machine = self._machine.world.machines.get(peer_host)
        peer = machine.processes.get(peer_pid) if machine is not None else None
        watching = True

        def lost(reason: str) -> None:
            if watching and self._alive:
                call(reason)

        def end_watch() -> None:
            nonlocal watching
            watching = False
            if peer is not None:
                peer._mourners.pop(id(lost), None)

        if peer is not None:
            peer._mourners[id(lost)] = lost
        elif machine is not None and machine.running:
            # It is dead already: the first packet to it is answered with a reset.
            delay_s = self._machine.draw_s(self._machine.options.timing.line)
            self._machine.world.timers.after(delay_s, lambda: lost("reset"))
        self._watches.append(end_watch)
        return end_watch

    def on_links_changed(self, call: Callable[[], None]) -> Callable[[], None]:
        watch = self._machine.watch_links(call)
        self._watches.append(watch)
        return watch

    def gpu_errors(self) -> Sequence[GpuError]:
        return self._machine.gpu_errors

    def on_gpu_error(self, call: Callable[[GpuError], None]) -> Callable[[], None]:
        watch = self._machine.watch_errors(call)
        self._watches.append(watch)
        return watch

    @property
    def uses_gpus(self) -> bool:
        """Whether it runs a program with a model of its own, not a command of the system."""
        return self._model is not None

    # --- life ------------------------------------------------------------------------------

    async def run(self) -> None:
        """The process from start to end."""
        program = self._model or COMMANDS.get(self.argv[0])
        with self._scope:
            await sleep(self._machine.draw_s(self._machine.options.timing.start))
            if program is None:
                self.error_lines.append(f"{self.argv[0]}: command not found")
                status = NOT_FOUND
            else:
                try:
                    status = await program(self)
                except Exception as error:
                    # A program that fails ends with status 1 and says why; its host lives on.
                    _log.exception("program %s on %s failed", self.argv[0], self.host)
                    self.error_lines.append(f"{type(error).__name__}: {error}")
                    status = 1
            self._end(status)

    def terminate(self, number: int) -> None:
        """End it by a signal: its stream closes, and its peers see their connections reset."""
        if self._alive:
            self._end(-number)
            self._scope.cancel()

    def vanish(self) -> None:
        """End it without a word to anybody: its host has lost power, or the session ends."""
        if self._alive:
            self._alive = False
            self._cleanup()
            self._mourners.clear()
            self._scope.cancel()

    def reset_connection(self) -> None:
        """Its host has booted since, and answers the old connection with a reset."""
        self.lost = True
        self.output.close()

    def stop(self) -> None:
        """Hang until :meth:`go_on`: neither dead nor doing anything."""
        if self._go_on is None:
            self._go_on = trio.Event()
            self._machine.links_changed()  # so that models look at `stopped` at once

    def go_on(self) -> None:
        """Go on after :meth:`stop`."""
        if self._go_on is not None:
            self._go_on.set()
            self._go_on = None
            self._machine.links_changed()

    def _end(self, status: int) -> None:
        if not self._alive:
            return
        self._alive = False
        self.status = status
        self._cleanup()
        delay_s = self._machine.draw_s(self._machine.options.timing.line)
        self.output.close(delay_s)
        for call in self._mourners.values():
            self._machine.world.timers.after(delay_s, functools.partial(call, "reset"))
        self._mourners.clear()
        self._machine.ended(self)

    def _cleanup(self) -> None:
        self._input.close()
        for end_watch in self._watches:
            end_watch()
        self._watches.clear()
        for key in self._shared:
            self._machine.world.disagree(key)
        self._shared.clear()

    async def _while_stopped(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._go_on is not None:
            await self._go_on.wait()

    # --- from the controller ---------------------------------------------------------------

    def feed(self, line: str) -> None:
        """A line for its standard input is on the way."""
        if self._machine.running:
            self._input.put(line, self._machine.draw_s(self._machine.options.timing.line))

    def close_input(self) -> None:
        """Close its standard input."""
        self._input.close()


class RemoteProcess:
    """The controller's end of a process, over the control connection."""

    def __init__(self, process: RunningProcess, machine: Machine) -> None:
        self._process = process
        self._machine = machine

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def host(self) -> str:
        return self._machine.name

    def lines(self) -> AsyncIterator[str]:
        """Lines of its standard output until it ends or the connection is lost."""
        return _Lines(self._process)

    async def send_line(self, line: str) -> None:
        """Write a line to its standard input; into the void, when its host has no power:
        writing to a connection shows nothing of the other end."""
        await trio.lowlevel.checkpoint()
        if self._process.lost:
            raise self._reset("send")
        if self._process.status is not None:
            raise DeviceLost(
                f"host {self.host}: process {self.pid} has ended with status "
                f"{self._process.status} and reads no more",
                device=self.host,
                operation="send",
                last_state=f"exit status {self._process.status}",
            )
        self._process.feed(line)

    async def signal(self, number: int) -> None:
        """Send a signal; one to a process that has ended does nothing."""
        await self._machine.until_reachable()
        await sleep(self._machine.draw_s(self._machine.options.timing.command))
        await self._machine.until_reachable()
        deliver_signal(self._process, number)

    async def wait(self) -> int:
        """Its exit status. :raises DeviceLost: when the connection was reset."""
        await self._process.output.wait_closed()
        if self._process.status is None:
            raise self._reset("wait")
        return self._process.status

    def _reset(self, operation: str) -> DeviceLost:
        return DeviceLost(
            f"host {self.host}: connection of process {self.pid} was reset; the host has booted "
            "since",
            device=self.host,
            operation=operation,
            last_state="rebooted",
        )


def deliver_signal(process: RunningProcess, number: int) -> None:
    """What a process does on a signal; programs of the simulation handle none themselves."""
    match number:
        case 0 | signals.SIGCHLD | signals.SIGURG | signals.SIGWINCH:
            pass
        case signals.SIGSTOP | signals.SIGTSTP:
            process.stop()
        case signals.SIGCONT:
            process.go_on()
        case _ if 0 < number < signals.NSIG:
            process.terminate(number)
        case _:
            raise DeviceRefused(
                f"host {process.host}: there is no signal {number}",
                device=process.host,
                operation="signal",
            )


class _Lines:
    """Iterator over the output of a process; a class, since an abandoned asynchronous generator
    would have to be closed by somebody."""

    def __init__(self, process: RunningProcess) -> None:
        self._output = process.output

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> str:
        try:
            return await self._output.get()
        except Closed:
            raise StopAsyncIteration from None
