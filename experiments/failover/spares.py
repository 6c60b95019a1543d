"""Choice of the spare: given or found, but always checked before it is trusted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import trio

from experiments.training.job import Job, Jobs
from testbed.errors import DeviceError, TaskFailed
from testbed.hal.capabilities import GpuHost, Host
from testbed.hal.wiring import Endpoint
from testbed.playbook.task import TaskContext
from testbed.rack.links import Link


class NoSpare(TaskFailed):
    """Not enough hosts can take over; ``fields["candidates"]`` says why for each."""

    kind = "no-spare"


def endpoints_in_use(links: Iterable[Link], slice_hosts: Collection[str]) -> frozenset[Endpoint]:
    """Interfaces taken by links of others; those of the slice itself may be moved."""
    return frozenset(
        end
        for link in links
        if not (link.a.host in slice_hosts and link.b.host in slice_hosts)
        for end in (link.a, link.b)
    )


@dataclass
class SpareChooser:
    """Chooses hosts to take over from failed ones.

    :param given: names in the order of preference; empty = any host of the rack, those with a
        warm worker of the job first.
    :param probe_s: time for one candidate to answer, in seconds.
    :ivar refused: why candidates were not taken, by name; they are not asked again.
    """

    context: TaskContext
    job: Job
    given: tuple[str, ...]
    probe_s: float
    refused: dict[str, str] = field(default_factory=dict)

    def candidates(self) -> tuple[str, ...]:
        """All hosts that may be asked, the best first."""
        if self.given:
            return self.given
        warm = dict.fromkeys(self.job.spec.standby)
        return tuple(dict.fromkeys((*warm, *self.context.rack.of_kind("host"))))

    async def choose(
        self, count: int, *, interfaces: int, links: Collection[Link], excluding: Collection[str]
    ) -> tuple[str, ...]:
        """``count`` healthy, free hosts with ``interfaces`` free wired interfaces each.

        :raises NoSpare: when there are not that many.
        """
        chosen: list[str] = []
        for host in self.candidates():
            if len(chosen) == count:
                break
            if host in self.refused:
                continue
            why = self._unfit(host, interfaces, links, excluding) or await self._unhealthy(host)
            if why is None:
                chosen.append(host)
            else:
                self.refused[host] = why
                self.context.log(f"{host} is no spare: {why}", host=host)
        if len(chosen) < count:
            raise NoSpare(
                f"job {self.job.spec.id}: {count} spare host(s) needed, {len(chosen)} found; "
                + "; ".join(f"{host}: {why}" for host, why in self.refused.items()),
                remedy="free or repair one of these hosts, name another, or shrink the job",
                job=self.job.spec.id,
                needed=count,
                found=chosen,
                candidates=dict(self.refused),
            )
        return tuple(chosen)

    def _unfit(
        self, host: str, interfaces: int, links: Collection[Link], excluding: Collection[str]
    ) -> str | None:
        rack = self.context.rack
        if host not in rack.of_kind("host"):
            return "the rack has no such host"
        if host in excluding:
            return "it is a member of the slice, or has failed"
        owner = self.context.resource(Jobs, Jobs).hosts_in_use().get(host)
        if owner is not None:
            return f"in use by job {owner}"
        busy = endpoints_in_use(links, ())
        free = [e for e in rack.wiring.endpoints_of(host) if e not in busy]
        if len(free) < interfaces:
            return f"{len(free)} free wired interface(s), {interfaces} needed"
        return None

    async def _unhealthy(self, host: str) -> str | None:
        with trio.move_on_after(self.probe_s):
            try:
                if host not in self.context.rack.having("gpu-host"):
                    await self.context.device(host, Host).health()
                    return None
                gpus = await self.context.device(host, GpuHost).gpus()
            except DeviceError as error:
                return f"not reachable ({error.message})"
            sick = [gpu.index for gpu in gpus if not gpu.healthy]
            if sick or not gpus:
                return f"GPU {', '.join(map(str, sick))} is not healthy" if sick else "no GPU"
            return None
        return f"no answer within {self.probe_s:g} s"
