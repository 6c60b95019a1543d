"""A failover from detection to the first good step, with one more try if a second host fails."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import trio

from experiments.training.job import Job
from testbed.errors import TaskFailed, TestbedError
from testbed.playbook.task import TaskContext

from .detection import Detection, Watch
from .policy import Policy
from .recovery import Recovery, Touched
from .spares import SpareChooser


@dataclass(frozen=True, slots=True)
class FailoverSettings:
    """Limits of a failover, in seconds.

    :param attempts: tries in all; a further one is made only when a further host has failed.
    """

    detect_within_s: float
    recover_within_s: float
    attempts: int = 2


class Failover:
    """Runs one failover of a job. The result is :meth:`run`'s; marks are set on the way."""

    def __init__(
        self,
        context: TaskContext,
        job: Job,
        watch: Watch,
        policy: Policy,
        chooser: SpareChooser,
        settings: FailoverSettings,
    ) -> None:
        self.context = context
        self.job = job
        self.watch = watch
        self.policy = policy
        self.chooser = chooser
        self.settings = settings
        self.members = job.hosts
        self.failed: list[str] = []
        self.replacing: dict[str, str] = {}
        self.former: dict[str, list[str]] = {}
        self.touched = Touched()

    async def run(self) -> dict[str, Any]:
        """Wait for a failure, recover from it, and report.

        :raises TaskFailed: when nothing fails, nothing helps, or no spare is found.
        """
        first = await self._first_failure()
        last_step = self.job.progress.step
        rate_before = self._rate_bps()
        self._give_up(first.host)
        attempt = 0
        with trio.move_on_after(self.settings.recover_within_s) as scope:
            while True:
                attempt += 1
                recovery = await self._decide(last_step, mark=attempt == 1)
                further = await self._attempt(recovery)
                if further is None:
                    break
                self._give_up(further)
                if attempt == self.settings.attempts:
                    raise TaskFailed(
                        f"job {self.job.spec.id}: {further} failed during recovery number "
                        f"{attempt}, and no further one is tried",
                        remedy="raise attempts, or find out why so many hosts fail",
                        failed=self.failed,
                    )
                self.context.log(f"{further} failed during the recovery; trying once more")
        if scope.cancelled_caught:
            raise TaskFailed(
                f"job {self.job.spec.id} was not back within "
                f"{self.settings.recover_within_s:g} s after {first.host} was found failed: "
                f"{self._where_it_stands()}",
                job=self.job.spec.id,
                failed=self.failed,
            )
        return self._report(first, recovery, attempt, rate_before)

    async def _first_failure(self) -> Detection:
        with trio.move_on_after(self.settings.detect_within_s):
            return await self.watch.failure()
        raise TaskFailed(
            f"job {self.job.spec.id}: no host was found failed within "
            f"{self.settings.detect_within_s:g} s by {', '.join(self.watch.settings.detectors)}",
            remedy="inject a fault before, add a detector, or raise detect_within",
            job=self.job.spec.id,
            symptom=self.watch.symptom,
        )

    def _give_up(self, host: str) -> None:
        self.failed.append(host)
        self.job.give_up(host)

    async def _decide(self, last_step: int, *, mark: bool) -> Recovery:
        """Choose a host for each place that is empty now; places that an attempt before filled
        well stay as they are."""
        self.replacing = {m: h for m, h in self.replacing.items() if h not in self.failed}
        places = self.policy.places(self.members, self.failed)
        empty = [place for place in places if place not in self.replacing]
        for place in empty:
            self.former.setdefault(place, [place])
        links = await self.context.fabric.links()
        wanted = max(
            (sum(k.touches(h) for k in links) for p in empty for h in self.former[p]), default=0
        )
        chosen = await self.chooser.choose(
            len(empty),
            interfaces=wanted,
            links=links,
            excluding={*self.members, *self.failed, *self.replacing.values()},
        )
        for place, host in zip(empty, chosen, strict=True):
            self.replacing[place] = host
            self.former[place].append(host)
        if mark:
            self.context.mark("failover.decided", policy=self.policy.name, spares=list(chosen))
        return Recovery(
            self.context,
            self.job,
            members=self.members,
            failed=self.failed,
            replacing=self.replacing,
            former=self.former,
            links=links,
            last_step=last_step,
            touched=self.touched,
        )

    async def _attempt(self, recovery: Recovery) -> str | None:
        """Let the policy work; returns the host that failed meanwhile, or ``None`` when the
        first step of the new slice is finished."""
        further: str | None = None
        error: TestbedError | None = None
        watched = set(recovery.new_members)

        async def guard(scope: trio.CancelScope) -> None:
            nonlocal further
            others = {d.host for d in self.watch.detections} - watched
            while True:
                found = await self.watch.failure(ignoring=frozenset({*others, *self.failed}))
                if found.host in watched:
                    break
                others.add(found.host)
            await recovery.fabric_at_rest()
            further = found.host
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(guard, nursery.cancel_scope)
            try:
                await self.policy.execute(recovery)
                await self.job.until(lambda: self.job.progress.good_since is not None)
                if further is None:
                    nursery.cancel_scope.cancel()
                    return None
            except TestbedError as caught:
                error = caught  # raised below: here it would come out in a group
            nursery.cancel_scope.cancel()
        if error is not None and further is None:
            # An error that names a host of the new slice is that host's failure, seen before
            # any detector saw it; all others (a switch, the checkpoint) are no host's fault.
            blamed = error.fields.get("device") or error.fields.get("host")
            if blamed not in watched:
                raise error
            further = str(blamed)
            self.context.log(f"recovery failed at {further}: {error.message}")
        return further

    # --- report ----------------------------------------------------------------------------

    def _rate_bps(self) -> float | None:
        rates = self.job.progress.rates_bps
        return statistics.median(rates) if rates else None

    def _where_it_stands(self) -> str:
        progress = self.job.progress
        return (
            f"generation {self.job.generation}, members {', '.join(self.job.hosts)}, "
            f"{'running' if progress.good_since is not None else 'no good step yet'}"
        )

    def _report(
        self, first: Detection, recovery: Recovery, attempts: int, rate_before: float | None
    ) -> dict[str, Any]:
        rate_after = self._rate_bps()
        ratio = rate_after / rate_before if rate_after and rate_before else None
        spares = [h for h in recovery.new_members if h not in self.members]
        return {
            "policy": self.policy.name,
            "failed": list(self.failed),
            "detected_by": first.detector,
            "detectors": self.watch.detectors_of(first.host),
            "spare": spares[0] if spares else None,
            "spares": spares,
            "refused": dict(self.chooser.refused),
            "hosts": list(recovery.new_members),
            "links_added": self.touched.added,
            "links_removed": self.touched.removed,
            "circuits_added": self.touched.circuits_added,
            "circuits_removed": self.touched.circuits_removed,
            "attempts": attempts,
            "lost_steps": recovery.last_step - recovery.resumed_step,
            "bandwidth_before_bps": rate_before,
            "bandwidth_after_bps": rate_after,
            "bandwidth_ratio": ratio,
            "blast_radius": self.touched.as_record(),
        }
