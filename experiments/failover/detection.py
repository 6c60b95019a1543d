"""Detectors: independent observers of a job, running in the background side by side.

Each sets a mark of its own (``detect.connection-loss``, ``detect.heartbeat``, ...) for every
worker that it finds failed, and goes on after another was faster, so that one trial measures
all of them. The first of all sets ``fault.detected``. ``fault.first-symptom`` is set when
anything is seen that *could* be a failure, as a worker whose collective broke.

=================== =====================================================================
``connection-loss`` the stream of a worker ended, or a peer reported a broken connection
``heartbeat``       a worker was silent for ``heartbeat_misses`` heartbeat intervals
``gpu-xid``         a worker reported a GPU error, or the host's log shows a new one
``link-loss``       carriers of the slice are gone; see :mod:`experiments.failover.link_watch`
=================== =====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import trio

from experiments.training.job import Job, JobEvent, StreamEnded
from experiments.training.protocol import Failed, GpuFault, PeerLost
from experiments.training.worker import Standing, Worker
from testbed.errors import DeviceError
from testbed.hal.capabilities import GpuHost
from testbed.playbook.task import TaskContext
from testbed.timing.alarm import sleep
from testbed.timing.clock import now_s

from .link_watch import LinkWatch, answers

DetectorName = Literal["connection-loss", "heartbeat", "gpu-xid", "link-loss"]
DETECTORS: tuple[DetectorName, ...] = ("connection-loss", "heartbeat", "gpu-xid", "link-loss")
PROBE_S = 0.5
"""Time for a suspected host to answer."""
START_PROBE_S = 1.0
"""Pause between looks at the hosts on which workers start."""


@dataclass(frozen=True, slots=True)
class Detection:
    """One detector found one host of the job failed.

    :param at_s: when it knew, on :func:`testbed.timing.clock.now_s`.
    """

    detector: DetectorName
    host: str
    reason: str
    at_s: float


@dataclass(frozen=True, slots=True)
class DetectionSettings:
    """Which detectors run, and how patient they are.

    :param heartbeat_misses: heartbeat intervals of silence that are a failure.
    :param gpu_poll_s: pause between looks at the hosts' own GPU logs, in seconds.
    """

    detectors: tuple[DetectorName, ...] = ("connection-loss", "heartbeat", "gpu-xid")
    heartbeat_misses: int = 3
    gpu_poll_s: float = 1.0


class Watch:
    """All detectors of one job, from :meth:`start` until the trial ends.

    :ivar symptom: the first thing that was seen and could be a failure, for people.
    """

    def __init__(self, context: TaskContext, job: Job, settings: DetectionSettings) -> None:
        self.context = context
        self.job = job
        self.settings = settings
        self.detections: list[Detection] = []
        self._seen: set[tuple[str, str]] = set()
        self.symptom: str | None = None
        self._news = trio.Event()
        self._changed = trio.Event()

    def start(self) -> None:
        """Begin to watch; what has happened already is seen at once."""
        on = self.settings.detectors
        self.job.subscribe(self._on_event)
        for worker in self.job.workers:
            if worker.ended_s is not None:
                self._on_event(worker, StreamEnded(worker.end_reason))
        name = f"detect {self.job.spec.id}"
        if "heartbeat" in on:
            self.context.start_soon(self._heartbeats, name=f"{name}: heartbeat")
            self.context.start_soon(self._starts, name=f"{name}: starting workers")
        if "gpu-xid" in on:
            self.context.start_soon(self._gpu_logs, name=f"{name}: gpu-xid")
        if "link-loss" in on:
            links = LinkWatch(
                self.context,
                hosts=lambda: self.job.hosts,
                symptom=self._notice,
                failure=lambda host, why: self._found("link-loss", host, why),
            )
            self.context.start_soon(links.run, name=f"{name}: link-loss")

    async def failure(self, *, ignoring: frozenset[str] = frozenset()) -> Detection:
        """The first detection of a host that is not ignored; waits for it."""
        while True:
            for detection in self.detections:
                if detection.host not in ignoring:
                    return detection
            await self._news.wait()

    def detectors_of(self, host: str) -> list[str]:
        """Names of the detectors that found that host failed so far, the fastest first."""
        return [d.detector for d in self.detections if d.host == host]

    # --- connection loss, and what workers report -------------------------------------------

    def _on_event(self, worker: Worker, event: JobEvent) -> None:
        on = self.settings.detectors
        match event:
            case StreamEnded() if worker.standing is not Standing.RETIRED:
                self._notice(worker.host, event.reason)
                # The end of a worker that was fenced after another detector is our own doing.
                if "connection-loss" in on and worker.standing is not Standing.FAILED:
                    self._found("connection-loss", worker.host, event.reason)
            case PeerLost() if event.generation == self.job.generation:
                host = event.peer.rpartition("/")[0]
                self._notice(worker.host, f"{worker.name}: collective broke ({event.reason})")
                if "connection-loss" in on and event.reason == "reset" and self._serves(host):
                    self._found("connection-loss", host, f"{worker.name} lost {event.peer}")
            case GpuFault():
                self._notice(worker.host, f"XID {event.xid}")
                if "gpu-xid" in on:
                    self._found("gpu-xid", worker.host, f"XID {event.xid}: {event.message}")
            case Failed() if worker.standing is not Standing.RETIRED:
                self._notice(worker.host, event.reason)
            case _:
                pass

    def _serves(self, host: str) -> bool:
        return any(w.host == host and w.standing is Standing.MEMBER for w in self.job.workers)

    def _notice(self, source: str, what: str) -> None:
        if self.symptom is None:
            self.symptom = what
            # Taken when it reaches the controller: its own clock, no offset to be estimated.
            self.context.mark("fault.first-symptom", host=source, what=what)

    def _found(self, detector: DetectorName, host: str, reason: str) -> None:
        if (detector, host) in self._seen:
            return
        self._seen.add((detector, host))
        self._notice(host, reason)
        detection = Detection(detector, host, reason, now_s())
        first = not self.detections
        self.detections.append(detection)
        self.context.mark(f"detect.{detector}", host=host, reason=reason)
        if first:
            self.context.mark("fault.detected", host=host, by=detector)
        self._news.set()
        self._news = trio.Event()

    # --- heartbeat ----------------------------------------------------------------------------

    async def _heartbeats(self) -> None:
        limit_s = self.job.spec.heartbeat_s * self.settings.heartbeat_misses
        while True:
            now = now_s()
            next_s = now + limit_s
            for worker in self.job.workers + self._given_up():
                if not worker.ready or worker.killed or worker.standing is Standing.RETIRED:
                    continue
                due_s = worker.last_heard_s + limit_s
                if due_s <= now:
                    if ("heartbeat", worker.host) not in self._seen:
                        silent_s = now - worker.last_heard_s
                        self._found("heartbeat", worker.host, f"silent for {silent_s:.3f} s")
                else:
                    next_s = min(next_s, due_s)
            await sleep(next_s - now)

    async def _starts(self) -> None:
        """A worker that starts has no heartbeat yet, so its host is asked instead."""
        while True:
            await sleep(START_PROBE_S)
            starting = {w.host for w in self.job.workers if w.alive and not w.ready}
            for host in sorted(starting):
                if not await answers(self.context, host, PROBE_S):
                    self._found("heartbeat", host, "no answer from it while a worker starts there")

    def _given_up(self) -> list[Worker]:
        """Failed workers stay under watch: how long a heartbeat takes is measured even where a
        broken connection was faster."""
        return [w for w in self.job.failed if w not in self.job.workers]

    # --- GPU errors in the hosts' logs --------------------------------------------------------

    async def _gpu_logs(self) -> None:
        known: dict[str, int] = {}
        capable = set(self.context.rack.having("gpu-host"))
        while True:
            await sleep(self.settings.gpu_poll_s)
            if self.detections:
                return  # the failure is known; looking on would disturb what is measured
            for host in self.job.hosts:
                if host not in capable:
                    continue
                try:
                    errors = await self.context.device(host, GpuHost).gpu_errors()
                except DeviceError:
                    continue  # other detectors say what it means that a host does not answer
                new = errors[known.get(host, 0) :]
                known[host] = len(errors)
                if new:
                    self._found("gpu-xid", host, f"XID {new[0].xid}: {new[0].message}")


class Watches:
    """The watches of a trial, by job."""

    def __init__(self) -> None:
        self._watches: dict[str, Watch] = {}

    def of(self, context: TaskContext, job: Job, settings: DetectionSettings) -> Watch:
        """The watch of that job, started now unless it was before."""
        watch = self._watches.get(job.spec.id)
        if watch is None or watch.job is not job:
            watch = self._watches[job.spec.id] = Watch(context, job, settings)
            watch.start()
        return watch
