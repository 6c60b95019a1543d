"""The simulated training program: ``testbed-train`` on a host of a mock rack.

It speaks :mod:`experiments.training.protocol`, sees the links that the simulated switches really
carry, dies without a word when its host loses power, and is silent when it hangs. What it says
about durations is *modelled* from :mod:`experiments.training.options`; the loss it reports
follows a simple power law, and says nothing about any model's quality.

How it fails, and how that is seen by its peers:

- a peer's process is killed: the connection resets, seen after ``reset_seen``;
- a peer's host loses power, a fibre is cut, a peer hangs: silence. The collective stalls until
  ``collective_timeout_s``, and then the worker cannot say which peer it was;
- a GPU of its own host has an error: it reports that, and exits with status 1.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from testbed.errors import ProtocolError
from testbed.hal.simulation import SimulatedProcess
from testbed.hal.types import GpuError
from testbed.timing.alarm import Alarm, sleep
from testbed.timing.clock import now_s

from .collective import ring_latency_s, ring_traffic_bytes
from .group import Group, Groups
from .launch import LaunchSettings, settings_of
from .options import COMPUTE_S, ProgramOptions, options_of
from .protocol import (
    Bye,
    Checkpoint,
    Checkpointed,
    Failed,
    Form,
    Formed,
    GpuFault,
    Heartbeat,
    PeerLost,
    Ping,
    Pong,
    Ready,
    Report,
    Restore,
    Restored,
    Start,
    StepDone,
    Stop,
    encode,
    parse_command,
)
from .workloads import workload

LOSS_START, LOSS_FLOOR, LOSS_STEPS, LOSS_POWER = 10.8, 2.2, 40.0, 0.5
USAGE_ERROR = 2


async def train(process: SimulatedProcess) -> int:
    """Entry point of the program; returns its exit status."""
    try:
        settings = settings_of(process.argv)
        options = options_of(settings.options)
        worker = SimulatedWorker(process, settings, options)
    except ValueError as error:
        await process.emit(encode(Failed(now_s(), str(error)[:1000])))
        return USAGE_ERROR
    return await worker.run()


def modelled_loss(step: int) -> float:
    """Loss after that step: a power law towards a floor, for show."""
    falling: float = (1 + step / LOSS_STEPS) ** -LOSS_POWER
    return LOSS_FLOOR + (LOSS_START - LOSS_FLOOR) * falling


class SimulatedWorker:
    """One worker process."""

    def __init__(
        self, process: SimulatedProcess, settings: LaunchSettings, options: ProgramOptions
    ) -> None:
        self.process = process
        self.settings = settings
        self.options = options
        self.workload = workload(settings.model)
        self.name = f"{process.host}/{settings.slot}"
        self._compute = options.compute or COMPUTE_S[self.workload.name]
        self._groups = process.shared("testbed-train", Groups)
        self._group: Group | None = None
        self._generation = 0
        self._rank = 0
        self._warm = False
        self._work: trio.Nursery | None = None  # of everything done for the present group
        self._watches: list[Callable[[], None]] = []
        self._said_s = now_s()
        self._checkpoint_asked = False
        self._failure: GpuError | None = None
        self._failed = trio.Event()

    # --- life ------------------------------------------------------------------------------

    async def run(self) -> int:
        """Start, obey commands, and end; returns the exit status."""
        watch = self.process.on_gpu_error(self._on_gpu_error)
        try:
            load_s = 8 * self.workload.gradient_bytes / self.options.load_rate
            await sleep(self.options.start.draw_s(self.process.rng) + load_s)
            for error in self.process.gpu_errors():
                self._on_gpu_error(error)
            if self._failure is None:
                await self._say(Ready(now_s()))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._heartbeat)
                    nursery.start_soon(self._end_on_failure, nursery.cancel_scope)
                    await self._obey(nursery)
                    nursery.cancel_scope.cancel()
        finally:
            watch()
            self._leave()
        if self._failure is None:
            return 0
        fault = self._failure
        await self._say(GpuFault(now_s(), fault.gpu, fault.xid, fault.message))
        await self._say(Failed(now_s(), f"GPU {fault.gpu} failed with XID {fault.xid}"))
        return 1

    async def _obey(self, nursery: trio.Nursery) -> None:
        """Obey commands until ``stop``, or until the controller is gone."""
        while True:
            try:
                line = await self.process.receive()
            except EOFError:
                return
            try:
                command = parse_command(line)
            except ProtocolError as error:
                await self._say(Failed(now_s(), error.message))
                return
            match command:
                case Ping():
                    await self._say(Pong(now_s(), command.number))
                case Form():
                    self._leave()
                    nursery.start_soon(self._belong, command)
                case Restore() if self._work is not None and self._group is not None:
                    self._work.start_soon(self._restore, command, self._group)
                case Start() if self._work is not None and self._group is not None:
                    self._begin(command, self._group, self._work)
                case Checkpoint():
                    self._checkpoint_asked = True
                case Stop():
                    await self._say(Bye(now_s()))
                    return
                case _:
                    pass  # for a group that was abandoned meanwhile

    async def _say(self, report: Report) -> None:
        self._said_s = now_s()
        await self.process.emit(encode(report))

    async def _heartbeat(self) -> None:
        """Say something when nothing was said for the interval; also the watchdog of the
        collective, which is why a stall is noticed up to one interval late."""
        interval_s = self.settings.heartbeat_s
        alarm = Alarm()
        while True:
            due_s = self._said_s + interval_s
            if due_s > now_s():
                await alarm.wait(due_s)
                continue
            await self._say(Heartbeat(now_s()))
            group = self._group
            if group is None or group.broken or group.progress_s is None:
                continue
            if now_s() - group.progress_s > self.settings.collective_timeout_s:
                group.progress_s = None
                group.broken = True
                group.disturb()
                await self._say(PeerLost(now_s(), self._generation, "", "timeout"))

    # --- group -----------------------------------------------------------------------------

    def rate_to_bps(self, other: SimulatedWorker) -> float:
        """Rate from this worker to that one now, in bits per second."""
        if other.process.host == self.process.host:
            return self.options.local_rate
        return self.process.link_rate_bps(other.process.host)

    def _leave(self) -> None:
        """Abandon the present group and everything that is done for it."""
        if self._work is not None:
            self._work.cancel_scope.cancel()
            self._work = None
        for end_watch in self._watches:
            end_watch()
        self._watches.clear()
        if self._group is not None:
            self._groups.leave(self._group, self._rank)
            self._group = None

    async def _belong(self, command: Form) -> None:
        """Be a member of a group, until another is to be formed or the process ends."""
        self._generation, self._rank = command.generation, command.rank
        group = self._groups.join(
            self.settings.job, command.generation, command.members, command.rank, self
        )
        self._group = group
        group.disturb()  # the ring has one hop more
        self._watches.append(self.process.on_links_changed(group.disturb))
        async with trio.open_nursery() as work:
            self._work = work
            try:
                await self._form(command, group, work)
                await trio.sleep_forever()
            finally:
                # From here on a peer that is lost must find nobody: the nursery will be closed
                # before the process has ended.
                if self._work is work:
                    self._work = None

    async def _form(self, command: Form, group: Group, work: trio.Nursery) -> None:
        await group.complete.wait()
        for name, peer in zip(command.members, group.seats, strict=True):
            if peer is not None and peer is not self:
                self._watch_peer(group, work, name, peer.process)
        # Rank 0 waits and draws for all of them; the slowest member sets the pace.
        if command.rank == 0:
            await group.until_linked()
            draws = [w.form_s() for w in group.seats if w is not None]
            await group.work(max(draws), 0.0, group.rate_bps)
            group.formed.set()
        await group.formed.wait()
        self._warm = True
        await self._say(Formed(now_s(), command.generation))

    def form_s(self) -> float:
        """Draw how long this worker takes to form a group.

        A standby has imported everything and holds its listening sockets, and so is warm as
        well once it is asked to replace somebody; the first group of a job is cold.
        """
        cold = not self._warm and self._generation == 1
        options = self.options
        return (options.form_cold if cold else options.form_warm).draw_s(self.process.rng)

    def _watch_peer(
        self, group: Group, work: trio.Nursery, name: str, peer: SimulatedProcess
    ) -> None:
        def lost(reason: str) -> None:
            if self._work is work:
                group.broken = True
                group.disturb()
                work.start_soon(self._tell_loss, name, reason)

        self._watches.append(self.process.on_peer_loss(peer.pid, peer.host, lost))

    async def _tell_loss(self, peer: str, reason: str) -> None:
        await sleep(self.options.reset_seen.draw_s(self.process.rng))
        await self._say(PeerLost(now_s(), self._generation, peer, reason))

    # --- state -----------------------------------------------------------------------------

    async def _restore(self, command: Restore, group: Group) -> None:
        size = 0 if command.source == "initial" else self.workload.state_bytes
        if command.source == "peer":
            await group.work(0.0, 8 * size, lambda: self._rate_from_bps(group, command.peer))
        elif command.source == "checkpoint":
            share_bps = self.options.storage_rate / max(1, command.readers)
            await sleep(8 * size / share_bps)
        await self._say(Restored(now_s(), command.step, size))

    def _rate_from_bps(self, group: Group, peer: str) -> float:
        for donor in group.seats:
            if donor is not None and donor.name == peer and not donor.process.stopped:
                return donor.rate_to_bps(self)
        return 0.0

    # --- training --------------------------------------------------------------------------

    def _begin(self, command: Start, group: Group, work: trio.Nursery) -> None:
        if command.generation == self._generation:
            group.progress_s = now_s()
            if self._rank == 0:
                work.start_soon(self._lead, group, command.step)

    async def _lead(self, group: Group, step: int) -> None:
        """Rank 0: sleep through each step for the whole group."""
        ranks = len(group.members)
        traffic = round(ring_traffic_bytes(self.workload.gradient_bytes, ranks))
        latency_s = ring_latency_s(ranks, self.options.hop_latency)
        tokens = ranks * self.workload.tokens_per_step
        every = self.settings.checkpoint_every
        saving = Checkpointing(self.workload.state_bytes, self.options.storage_rate)
        while True:
            step += 1
            began_s = now_s()
            compute_s = max(w.compute_s() for w in group.seats if w is not None)
            done_s = await group.work(compute_s + latency_s, 8 * traffic, group.rate_bps)
            group.progress_s = done_s
            await self._say(
                StepDone(
                    t=done_s,
                    generation=self._generation,
                    n=step,
                    loss=round(modelled_loss(step), 6),
                    tokens=tokens,
                    compute_s=compute_s,
                    communication_s=done_s - began_s - compute_s,
                    traffic=traffic,
                )
            )
            written = saving.finished(done_s)
            if written is not None:
                await self._say(Checkpointed(done_s, written))
            if self._checkpoint_asked or (every and step % every == 0):
                # Asked for while another is being written: begun after a later step.
                self._checkpoint_asked = not saving.begin(step, done_s)

    def compute_s(self) -> float:
        """Draw the time of this rank's forward and backward pass."""
        return self._compute.draw_s(self.process.rng)

    # --- GPU -------------------------------------------------------------------------------

    def _on_gpu_error(self, error: GpuError) -> None:
        if self._failure is None:
            self._failure = error
            self._failed.set()

    async def _end_on_failure(self, scope: trio.CancelScope) -> None:
        await self._failed.wait()
        scope.cancel()


class Checkpointing:
    """Writes a snapshot to storage while training goes on; one at a time.

    :param size: bytes of a checkpoint.
    :param rate_bps: of the storage, in bits per second.
    """

    def __init__(self, size: int, rate_bps: float) -> None:
        self._duration_s = 8 * size / rate_bps
        self._step: int | None = None
        self._done_s = 0.0

    def begin(self, step: int, at_s: float) -> bool:
        """Begin to write the state after that step; false while another is being written."""
        if self._step is not None:
            return False
        self._step, self._done_s = step, at_s + self._duration_s
        return True

    def finished(self, now: float) -> int | None:
        """The step whose checkpoint has been completed by now; told once."""
        if self._step is None or now < self._done_s:
            return None
        step, self._step = self._step, None
        return step
