"""LUMION: a warm spare is swapped in through the fabric; the survivors stay up."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from experiments.training.worker import Worker
from testbed.hal.together import gather

from .recovery import Recovery


@dataclass(frozen=True)
class Lumion:
    """Re-points the failed host's links to the spare, forms a new process group in place, and
    copies the state from a survivor over the fabric. No step that was finished is lost.

    The spare's worker and the group's rendezvous do not wait for the light: the workers are
    told of the new group while the switches still work, and join their connections as soon as
    the links are up. Regroup therefore costs what is left of it after link-up.
    """

    name: str = "lumion"
    summary: str = "warm spare through the fabric, survivors stay up, state from a peer"

    def places(self, members: Sequence[str], failed: Collection[str]) -> tuple[str, ...]:
        return tuple(host for host in members if host in failed)

    async def execute(self, recovery: Recovery) -> None:
        job = recovery.job
        survivors = [w for host in recovery.survivors for w in job.on(host)]
        fresh: list[Worker] = []

        async def regroup() -> None:
            workers = []
            for host in recovery.new_members:
                here = await recovery.warm_workers(host)
                workers += here
                fresh.extend(w for w in here if w not in survivors)
            await job.form(workers)

        # A restart would cost them their state; say so instead of calling it survival.
        step = recovery.last_step if survivors else recovery.checkpoint_step()
        recovery.touched.kept |= {w.name for w in survivors}
        await gather({"links": recovery.replace_links, "group": regroup})
        await job.restore(fresh, step=step, peer=survivors[0] if survivors else None)
        await recovery.resume(step)


POLICY = Lumion()
