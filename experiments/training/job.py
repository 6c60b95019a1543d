"""A training job as the controller sees it: workers, process groups, steps.

It knows the line protocol and nothing of what is behind it, so that it drives a simulated and
a real program alike. How a failure is handled is not decided here: policies use the verbs of
:class:`Job` (``launch``, ``form``, ``restore``, ``resume``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from testbed.errors import DeviceError, TaskFailed
from testbed.hal.capabilities import Host
from testbed.hal.together import gather
from testbed.playbook.task import TaskContext
from testbed.timing.clock import now_s

from . import protocol
from .launch import argv_of
from .protocol import Checkpointed, Failed, Formed, Ready, Report, Restored, StepDone
from .worker import Standing, Worker

STOP_GRACE_S = 0.5
RECENT_STEPS = 64


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The output of a worker has ended: it died, was killed, or its connection broke."""

    reason: str


JobEvent = Report | StreamEnded
Listener = Callable[[Worker, JobEvent], None]


@dataclass(frozen=True)
class JobSpec:
    """What a job runs, where.

    :param program: name of the program on the hosts.
    :param model: name out of :data:`experiments.training.workloads.WORKLOADS`.
    :param hosts: hosts of the slice, in the order of the ring.
    :param standby: hosts on which a warm worker waits without rank.
    :param workers_per_host: workers on each host, one for each of its GPUs that is used.
    :param heartbeat_s: longest silence of a healthy worker, in seconds.
    :param collective_timeout_s: after which a worker gives up a collective, in seconds.
    :param checkpoint_every: steps between checkpoints; 0 = none.
    :param options: settings of the program itself, handed on unread.
    """

    id: str
    program: str
    model: str
    hosts: tuple[str, ...]
    standby: tuple[str, ...] = ()
    workers_per_host: int = 1
    heartbeat_s: float = 0.1
    collective_timeout_s: float = 10.0
    checkpoint_every: int = 10
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Progress:
    """How far training has come.

    :ivar step: newest finished step; 0 before the first.
    :ivar checkpoint: step of the newest complete checkpoint; ``None`` = there is none.
    :ivar good_since: step that was the first good one after the newest recovery.
    :ivar rates_bps: rate of the collective in the latest steps of this generation, in bits
        per second: traffic over communication time, as the workers saw it.
    """

    step: int = 0
    loss: float | None = None
    tokens: int = 0
    checkpoint: int | None = None
    good_since: int | None = None
    rates_bps: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))


class Job:
    """A running job. Made by :func:`experiments.training.tasks.start`; ends with its trial."""

    def __init__(self, context: TaskContext, spec: JobSpec) -> None:
        self.context = context
        self.spec = spec
        self.hosts: tuple[str, ...] = spec.hosts
        self.workers: list[Worker] = []
        self.failed: list[Worker] = []
        self.generation = 0
        self.recoveries = 0
        self.stopped = False
        self.progress = Progress()
        self._listeners: list[Listener] = []
        self._waiters: list[tuple[Callable[[], bool], trio.Event]] = []

    # --- looking ---------------------------------------------------------------------------

    @property
    def members(self) -> list[Worker]:
        """Workers that have a rank, by rank."""
        return [w for w in self.workers if w.standing is Standing.MEMBER]

    @property
    def state(self) -> str:
        """``starting``, ``running``, ``broken``, ``recovering`` or ``stopped``."""
        if self.stopped:
            return "stopped"
        if len({w.host for w in self.members if w.alive}) < len(self.hosts):
            return "broken"
        if self.progress.step == 0:
            return "starting"
        return "running" if self.progress.good_since is not None else "recovering"

    def on(self, host: str) -> list[Worker]:
        """Workers on that host that may be expected to obey, by slot."""
        return [w for w in self.workers if w.host == host and w.alive]

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have every event told, as it arrives; returns a function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition on this job holds; it is looked at after each event."""
        if holds():
            return
        event = trio.Event()
        waiter = (holds, event)
        self._waiters.append(waiter)
        try:
            await event.wait()
        finally:
            self._waiters.remove(waiter)

    # --- verbs -----------------------------------------------------------------------------

    async def launch(self, hosts: Iterable[str], standing: Standing) -> list[Worker]:
        """Start the workers of these hosts, all together, and wait until they are ready.

        :raises DeviceError: when a process cannot be started.
        :raises TaskFailed: when one ends before it is ready.
        """

        async def one(host: str, slot: int) -> Worker:
            device = self.context.device(host, Host)
            process = await device.spawn(argv_of(self.spec, slot), tag=self.context.run_id)
            worker = Worker(host, slot, process, standing)
            # Known from now on, so that the cleanup finds it even if a sister fails to start.
            self.workers.append(worker)
            self.context.start_soon(
                lambda: self._follow(worker), name=f"job {self.spec.id}: reports of {worker.name}"
            )
            return worker

        places = [(host, slot) for host in hosts for slot in range(self.spec.workers_per_host)]
        started = await gather({place: partial(one, *place) for place in places})
        workers = list(started.values())
        await self.until(lambda: all(w.ready or not w.alive for w in workers))
        for worker in workers:
            if not worker.ready:
                why = worker.last_words or await worker.why_ended()
                raise TaskFailed(
                    f"job {self.spec.id}: worker {worker.name} ended before it was ready: {why}",
                    job=self.spec.id,
                    host=worker.host,
                )
        return workers

    async def form(self, members: Sequence[Worker]) -> None:
        """Make these workers the members, by rank, of a new process group, and wait for it."""
        self.generation += 1
        generation = self.generation
        for worker in members:
            worker.standing = Standing.MEMBER
        others = [w for w in self.workers if w.alive and w not in members]
        for worker in others:
            worker.standing = Standing.STANDBY
        self.workers = [*members, *others]
        self.hosts = tuple(dict.fromkeys(w.host for w in members))
        self.progress.good_since = None
        self.progress.rates_bps.clear()
        names = tuple(w.name for w in members)
        await gather(
            {
                worker.name: partial(worker.send, protocol.Form(generation, rank, names))
                for rank, worker in enumerate(members)
            }
        )
        await self.until(lambda: all(w.generation >= generation for w in members))
        if generation > 1:
            self.context.mark("job.regrouped", job=self.spec.id, generation=generation)

    async def restore(
        self, workers: Sequence[Worker], *, step: int, peer: Worker | None = None
    ) -> None:
        """Have these workers get the state of ``step``: from a peer, or from the checkpoint.

        A job that goes back to step 0 has nothing to get: its workers loaded that at the start.
        """
        source: protocol.RestoreSource = "initial" if step == 0 else "checkpoint"
        command = protocol.Restore(
            source=source if peer is None else "peer",
            step=step,
            peer="" if peer is None else peer.name,
            readers=len(workers),
        )
        for worker in workers:
            worker.restored_step = None
        await gather({worker.name: partial(worker.send, command) for worker in workers})
        await self.until(lambda: all(w.restored_step == step for w in workers))
        self.context.mark("job.restored", job=self.spec.id, source=command.source, step=step)

    async def resume(self, *, step: int) -> None:
        """Train on from the step after ``step``."""
        self.progress.step = step
        command = protocol.Start(generation=self.generation, step=step)
        await gather({worker.name: partial(worker.send, command) for worker in self.members})

    async def checkpoint(self) -> None:
        """Ask for a checkpoint and wait until it is written."""
        before = self.progress.checkpoint
        await self.members[0].send(protocol.Checkpoint())
        await self.until(lambda: self.progress.checkpoint != before)

    async def wait_step(self, step: int) -> None:
        """Wait until that step is finished. :raises TaskFailed: when no worker is left."""
        await self.until(lambda: self.progress.step >= step or not self._anybody())
        if self.progress.step < step:
            raise TaskFailed(
                f"job {self.spec.id} has no worker left; its last step was {self.progress.step}, "
                f"and step {step} was waited for",
                job=self.spec.id,
                step=self.progress.step,
            )

    async def end(self, workers: Sequence[Worker], standing: Standing) -> bool:
        """Kill workers, all together; false when one of them could not be reached."""
        for worker in workers:
            worker.standing = standing
        killed = await gather({id(worker): worker.kill for worker in workers})
        return all(killed.values())

    def give_up(self, host: str) -> list[Worker]:
        """Take the workers of a failed host for lost, and fence them in the background: one
        that only hung must not come back into a group that goes on without it."""
        lost = [w for w in self.workers if w.host == host and w.standing is not Standing.RETIRED]
        for worker in lost:
            worker.standing = Standing.FAILED
            if worker not in self.failed:
                self.failed.append(worker)
        self.workers = [w for w in self.workers if w not in lost]
        running = [w for w in lost if w.ended_s is None]
        if running:

            async def fence() -> None:
                await self.end(running, Standing.FAILED)

            self.context.start_soon(fence, name=f"job {self.spec.id}: fence {host}")
        return lost

    async def stop(self) -> None:
        """Ask all workers to stop, and kill those that do not within their grace."""
        self.stopped = True
        workers = [w for w in self.workers if w.ended_s is None]
        for worker in workers:
            worker.standing = Standing.RETIRED

        async def ask(worker: Worker) -> None:
            try:
                await worker.send(protocol.Stop())
            except DeviceError:
                return  # gone already, or killed below

        with trio.move_on_after(STOP_GRACE_S):
            await gather({worker.name: partial(ask, worker) for worker in workers})
            await self.until(lambda: all(w.ended_s is not None for w in workers))
        await self.end([w for w in workers if w.ended_s is None], Standing.RETIRED)

    async def kill(self) -> None:
        """Cleanup: end every process of the job that may still run."""
        self.stopped = True
        everyone = [*self.workers, *self.failed]
        await self.end([w for w in everyone if w.ended_s is None], Standing.RETIRED)

    # --- events ----------------------------------------------------------------------------

    async def _follow(self, worker: Worker) -> None:
        """Read a worker's reports until its stream ends; runs as long as the trial."""
        reason = ""
        try:
            async for report in worker.reports():
                self._on_report(worker, report)
                self._tell(worker, report)
        except DeviceError as error:
            if error.kind == "device-protocol":
                raise
            reason = error.message
        worker.ended_s = now_s()
        worker.end_reason = reason or "its stream ended"
        self._tell(worker, StreamEnded(worker.end_reason))

    def _on_report(self, worker: Worker, report: Report) -> None:
        match report:
            case StepDone():
                self._on_step(report)
            case Ready():
                worker.ready = True
            case Formed():
                worker.generation = max(worker.generation, report.generation)
            case Restored():
                worker.restored_step = report.step
            case Checkpointed():
                self.progress.checkpoint = report.step
            case Failed():
                worker.last_words = report.reason
            case _:
                pass  # for the detectors

    def _on_step(self, report: StepDone) -> None:
        if report.generation != self.generation:
            return  # said before the group was replaced, and read after
        progress = self.progress
        progress.step = report.n
        progress.loss = report.loss
        progress.tokens += report.tokens
        if report.communication_s > 0:
            progress.rates_bps.append(8 * report.traffic / report.communication_s)
        if progress.good_since is None:
            progress.good_since = report.n
            if self.generation == 1:
                self.context.mark("job.first-step", job=self.spec.id)
            else:
                self.recoveries += 1
                self.context.mark("job.first-good-step", job=self.spec.id, step=report.n)

    def _tell(self, worker: Worker, event: JobEvent) -> None:
        for listener in tuple(self._listeners):
            listener(worker, event)
        for holds, event_ in self._waiters:
            if not event_.is_set() and holds():
                event_.set()

    def _anybody(self) -> bool:
        return any(w.alive for w in self.workers)


class Jobs:
    """The jobs of a trial, by id."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def add(self, job: Job) -> None:
        """:raises TaskFailed: when a job of that id runs already."""
        known = self._jobs.get(job.spec.id)
        if known is not None and not known.stopped:
            raise TaskFailed(
                f"a job {job.spec.id!r} runs already in this trial",
                remedy="give the second job another id, or stop the first",
            )
        self._jobs[job.spec.id] = job

    def get(self, name: str) -> Job:
        """:raises TaskFailed: when no job of that id was started in this trial."""
        try:
            return self._jobs[name]
        except KeyError:
            raise TaskFailed(
                f"no job {name!r} was started in this trial",
                remedy=f"started were: {', '.join(self._jobs) or 'none'}",
            ) from None

    def hosts_in_use(self) -> dict[str, str]:
        """Hosts that are members of a job which was not stopped, with the job's id."""
        return {h: j.spec.id for j in self._jobs.values() if not j.stopped for h in j.hosts}
