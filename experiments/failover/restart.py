"""Cold restart of the whole job, with the spare in the failed host's place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from experiments.training.worker import Worker
from testbed.hal.together import gather

from .recovery import Recovery, cold_restart


@dataclass(frozen=True)
class Restart:
    """What an elastic launcher does: end all workers, start them all again on the new set of
    hosts, load the checkpoint. The ring is rebuilt while the programs start."""

    name: str = "restart"
    summary: str = "all workers ended and started again, the spare among them, from checkpoint"

    def places(self, members: Sequence[str], failed: Collection[str]) -> tuple[str, ...]:
        return tuple(host for host in members if host in failed)

    async def execute(self, recovery: Recovery) -> None:
        await restart_on(recovery, recovery.new_members)


async def restart_on(recovery: Recovery, hosts: tuple[str, ...]) -> None:
    """Restart on these hosts, with fabric and programs side by side."""
    workers: list[Worker] = []

    async def launch() -> None:
        workers.extend(await recovery.cold_workers(hosts))

    await gather({"links": lambda: recovery.rebuild_ring(hosts), "workers": launch})
    await cold_restart(recovery, workers)


POLICY = Restart()
