"""Migration: the whole job moves to other hosts, as operators of fixed fabrics must do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .recovery import Recovery
from .restart import restart_on


@dataclass(frozen=True)
class Migrate:
    """Needs as many free, healthy hosts as the job has: that is the cost of a fabric in which
    a single accelerator cannot be replaced."""

    name: str = "migrate"
    summary: str = "the whole job moved to other hosts, from checkpoint"

    def places(self, members: Sequence[str], failed: Collection[str]) -> tuple[str, ...]:
        return tuple(members)

    async def execute(self, recovery: Recovery) -> None:
        await restart_on(recovery, recovery.new_members)


POLICY = Migrate()
