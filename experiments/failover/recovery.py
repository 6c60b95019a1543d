"""One attempt to bring a job back: the verbs that policies are written in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from experiments.training.job import Job
from experiments.training.worker import Standing, Worker
from testbed.playbook.task import TaskContext
from testbed.rack.fabric import FabricReport
from testbed.rack.links import Link, ring

from .spares import endpoints_in_use


@dataclass
class Touched:
    """What a recovery has touched, over all its attempts: its blast radius.

    :ivar added: links set up; ``removed``: links taken down, with the circuits of switches that
        were set up and taken down for them.
    :ivar ended: workers ended although they were well; ``started``: workers started;
        ``kept``: workers that went on without a restart.
    :ivar foreign_links: links of others that were taken down.
    """

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    circuits_added: list[str] = field(default_factory=list)
    circuits_removed: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    started: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    foreign_links: set[str] = field(default_factory=set)

    def count(self, report: FabricReport, *, own: Collection[str]) -> None:
        """Add what one change of the fabric did; ``own`` are the hosts of the slice."""
        self.added += map(str, report.added)
        self.removed += map(str, report.removed)
        for switch, done in report.circuits.items():
            self.circuits_added += [f"{switch}:{circuit}" for circuit in done.added]
            self.circuits_removed += [f"{switch}:{circuit}" for circuit in done.removed]
        self.foreign_links |= {
            str(link) for link in report.removed if not {link.a.host, link.b.host} <= set(own)
        }

    def as_record(self) -> dict[str, Any]:
        return {
            "workers_ended": sorted(self.ended),
            "workers_started": sorted(self.started),
            "workers_kept": sorted(self.kept),
            "links_of_others": sorted(self.foreign_links),
        }


class Recovery:
    """What a policy may use. One object an attempt.

    :ivar members: hosts of the slice as they were before the first failure, in ring order.
    :ivar failed: hosts given up so far, earlier spares among them.
    :ivar replacing: member → host that takes its place.
    :ivar former: member → all hosts that had its place before, itself included.
    :ivar links: links of the fabric when the decision was made.
    :ivar last_step: the last step that was finished before the failure.
    """

    def __init__(
        self,
        context: TaskContext,
        job: Job,
        *,
        members: Sequence[str],
        failed: Collection[str],
        replacing: Mapping[str, str],
        former: Mapping[str, Sequence[str]],
        links: Collection[Link],
        last_step: int,
        touched: Touched,
    ) -> None:
        self.context = context
        self.job = job
        self.members = tuple(members)
        self.failed = frozenset(failed)
        self.replacing = dict(replacing)
        self.former = {member: tuple(hosts) for member, hosts in former.items()}
        self.links = frozenset(links)
        self.last_step = last_step
        self.touched = touched
        self.resumed_step = last_step
        self._changing = 0
        self._at_rest = trio.Event()
        self._at_rest.set()

    @property
    def survivors(self) -> tuple[str, ...]:
        """Members that are well, in ring order."""
        return tuple(h for h in self.members if h not in self.failed)

    @property
    def new_members(self) -> tuple[str, ...]:
        """The slice as it is to be, in ring order."""
        return tuple(self.replacing.get(h, h) for h in self.members)

    @property
    def _all_hosts(self) -> tuple[str, ...]:
        former = (h for hosts in self.former.values() for h in hosts)
        return tuple(dict.fromkeys((*self.members, *former, *self.replacing.values())))

    # --- fabric ----------------------------------------------------------------------------

    async def replace_links(self) -> None:
        """Put each spare where the host before it is: the fabric computes, from its links and
        the wiring, which circuits go down and which come up."""
        for member, spare in self.replacing.items():
            for before in self.former[member]:
                if before != spare and any(link.touches(before) for link in self.links):
                    async with self._changing_fabric():
                        report = await self.context.fabric.replace(
                            before, spare, within=self._all_hosts
                        )
                    self._count(report)

    async def rebuild_ring(self, hosts: Sequence[str]) -> None:
        """Take the slice down and make a ring of these hosts, in one change; links that are in
        both stay."""
        own = set(self._all_hosts)
        old = {link for link in self.links if link.a.host in own and link.b.host in own}
        new = set(ring(hosts, self.context.rack.wiring, endpoints_in_use(self.links, own)))
        async with self._changing_fabric():
            report = await self.context.fabric.change(
                add=sorted(new - old), remove=sorted(old - new)
            )
        self._count(report)

    @asynccontextmanager
    async def _changing_fabric(self) -> AsyncIterator[None]:
        if not self._changing:
            self._at_rest = trio.Event()
        self._changing += 1
        try:
            yield
        finally:
            self._changing -= 1
            if not self._changing:
                self._at_rest.set()

    async def fabric_at_rest(self) -> None:
        """Wait until no change of the fabric is under way: half a change helps nobody."""
        await self._at_rest.wait()

    def _count(self, report: FabricReport) -> None:
        self.touched.count(report, own=self._all_hosts)

    # --- workers ---------------------------------------------------------------------------

    async def warm_workers(self, host: str) -> list[Worker]:
        """The workers that wait on that host; started now where there are none."""
        workers = self.job.on(host)
        if not workers:
            workers = await self.job.launch([host], Standing.STANDBY)
            self.touched.started |= {w.name for w in workers}
        return workers

    async def cold_workers(self, hosts: Sequence[str]) -> list[Worker]:
        """End every worker of the job, and start new ones on these hosts."""
        old = [w for w in self.job.workers if w.alive]
        self.touched.ended |= {w.name for w in old}
        await self.job.end(old, Standing.RETIRED)
        workers = await self.job.launch(hosts, Standing.MEMBER)
        self.touched.started |= {w.name for w in workers}
        return workers

    def checkpoint_step(self) -> int:
        """Step of the newest checkpoint; 0, which means from scratch, when there is none."""
        return self.job.progress.checkpoint or 0

    async def resume(self, step: int) -> None:
        """Train on from the step after ``step``; steps since then are lost."""
        self.resumed_step = step
        await self.job.resume(step=step)


async def cold_restart(recovery: Recovery, workers: Sequence[Worker]) -> None:
    """The end that all restarting policies share: new group, state from the checkpoint."""
    step = recovery.checkpoint_step()
    await recovery.job.form(workers)
    await recovery.job.restore(workers, step=step)
    await recovery.resume(step)
