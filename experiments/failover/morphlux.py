"""Morphlux: a spare of the same rack, circuits to the neighbours, restart from checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .recovery import Recovery, cold_restart


@dataclass(frozen=True)
class Morphlux:
    """As published (section 5): the fault manager has circuits built between the spare and the
    failed accelerator's neighbours, and then restarts the job from its latest checkpoint.

    The order is the published one, fabric first and launch after it, although the two could
    overlap: the phases then compare with the published timeline.
    """

    name: str = "morphlux"
    summary: str = "spare in the rack, circuits to the neighbours, restart from checkpoint"

    def places(self, members: Sequence[str], failed: Collection[str]) -> tuple[str, ...]:
        return tuple(host for host in members if host in failed)

    async def execute(self, recovery: Recovery) -> None:
        await recovery.replace_links()
        workers = await recovery.cold_workers(recovery.new_members)
        await cold_restart(recovery, workers)


POLICY = Morphlux()
