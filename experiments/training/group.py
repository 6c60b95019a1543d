"""The process group of the simulated program: what its workers share over their own network.

All members compute in lockstep, so one of them, rank 0, sleeps for the whole group; the
others are asleep until somebody changes the group. The ring goes from each member to the next
one by rank, and data moves at the rate of the slowest link that exists at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from testbed.timing.alarm import Alarm
from testbed.timing.clock import now_s

if TYPE_CHECKING:
    from .model import SimulatedWorker


class Groups:
    """The groups of a simulated rack; a group is forgotten when its last member leaves."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], Group] = {}

    def join(
        self,
        job: str,
        generation: int,
        members: tuple[str, ...],
        rank: int,
        worker: SimulatedWorker,
    ) -> Group:
        """Enter the group of that generation as that rank."""
        key = (job, str(generation), *members)
        group = self._groups.get(key)
        if group is None or group.seats[rank] is not None:
            group = self._groups[key] = Group(members)
        group.seats[rank] = worker
        if all(seat is not None for seat in group.seats):
            group.complete.set()
        return group

    def leave(self, group: Group, rank: int) -> None:
        """Leave: a collective that needs this rank stalls from now on."""
        group.seats[rank] = None
        group.disturb()
        if not any(group.seats):
            self._groups = {key: g for key, g in self._groups.items() if g is not group}


class Group:
    """One generation of workers.

    :ivar complete: all members have come.
    :ivar formed: the group is ready at all members.
    :ivar progress_s: when it last made progress; ``None`` while nothing is to be done.
    :ivar broken: a member saw a connection break; no collective will finish any more.
    """

    def __init__(self, members: tuple[str, ...]) -> None:
        self.members = members
        self.seats: list[SimulatedWorker | None] = [None] * len(members)
        self.complete = trio.Event()
        self.formed = trio.Event()
        self.progress_s: float | None = None
        self.broken = False
        self._sleepers: list[Alarm] = []
        self._rate_bps: float | None = None  # until something disturbs the group

    def disturb(self) -> None:
        """Wake whoever sleeps for the group: a rate, a seat or its health has changed."""
        self._rate_bps = None
        for sleeper in self._sleepers:
            sleeper.ring()

    def rate_bps(self) -> float:
        """Rate of the slowest hop of the ring now; 0 when a member is gone or hangs."""
        if self._rate_bps is None:
            self._rate_bps = 0.0 if self.broken else self._slowest_bps()
        return self._rate_bps

    def _slowest_bps(self) -> float:
        slowest = math.inf
        seats = self.seats
        for rank, worker in enumerate(seats):
            following = seats[(rank + 1) % len(seats)]
            if worker is None or following is None or worker.process.stopped:
                return 0.0
            slowest = min(slowest, worker.rate_to_bps(following))
        return slowest

    async def until_linked(self) -> None:
        """Wait until every hop of the ring has a link."""
        while self.rate_bps() == 0:
            await self._sleep_until(math.inf)

    async def _sleep_until(self, instant_s: float) -> bool:
        """Sleep until an instant, or until the group is disturbed: then true."""
        alarm = Alarm()
        self._sleepers.append(alarm)
        try:
            return await alarm.wait(instant_s)
        finally:
            self._sleepers.remove(alarm)

    async def work(self, fixed_s: float, bits: float, rate_bps: Callable[[], float]) -> float:
        """Let ``fixed_s`` pass and then move ``bits``, at the rate that exists meanwhile.

        Returns the instant at which that is done by the model. In real time the sleeper wakes up
        a little later, and that is no part of the work: rates must not depend on how busy the
        machine is that simulates them.

        A rate of zero stalls until something changes. Nothing is awaited twice as long as
        nothing changes, which makes a step cost one sleep.
        """
        while True:
            rate = rate_bps()
            began_s = now_s()
            planned_s = fixed_s + (bits / rate if rate else (math.inf if bits else 0.0))
            if not await self._sleep_until(began_s + planned_s):
                return began_s + planned_s
            passed_s = now_s() - began_s
            waited_s = min(passed_s, fixed_s)
            fixed_s -= waited_s
            bits = max(0.0, bits - (passed_s - waited_s) * rate)
