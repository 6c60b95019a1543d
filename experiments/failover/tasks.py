"""Tasks of a failover: ``failover.watch`` and ``failover.run``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from experiments.training.job import Jobs
from testbed.errors import TaskFailed
from testbed.playbook.task import (
    PlanContext,
    TaskArgs,
    TaskContext,
    TaskPlan,
    TaskResult,
    TaskSpec,
)
from testbed.timing.quantity import Seconds

from .controller import Failover, FailoverSettings
from .detection import DETECTORS, DetectionSettings, DetectorName, Watches
from .policy import policy
from .spares import SpareChooser


class WatchArgs(TaskArgs):
    """Arguments of ``failover.watch``; see
    :class:`experiments.failover.detection.DetectionSettings`."""

    job: str
    detectors: Annotated[tuple[DetectorName, ...], Field(min_length=1)] = (
        "connection-loss",
        "heartbeat",
        "gpu-xid",
    )
    heartbeat_misses: Annotated[int, Field(ge=1)] = 3
    gpu_poll: Annotated[Seconds, Field(gt=0)] = 1.0

    def settings(self) -> DetectionSettings:
        return DetectionSettings(
            detectors=tuple(name for name in DETECTORS if name in self.detectors),
            heartbeat_misses=self.heartbeat_misses,
            gpu_poll_s=self.gpu_poll,
        )


async def watch(context: TaskContext, args: WatchArgs) -> TaskResult:
    """Start the detectors of a job; they run until the trial ends."""
    job = context.resource(Jobs, Jobs).get(args.job)
    settings = args.settings()
    if context.resource(Watches, Watches).of(context, job, settings).settings != settings:
        raise TaskFailed(
            f"job {args.job} is watched already, with other settings",
            remedy="give the detectors once: under failover.watch",
        )
    return {"detectors": list(settings.detectors)}


class RunArgs(WatchArgs):
    """Arguments of ``failover.run``. Those of ``failover.watch`` count only when the job is
    not watched yet.

    :param spare: ``auto``, a host, or hosts in the order of preference.
    :param min_bandwidth: smallest rate of the collective after the recovery, as a fraction of
        the rate before, with which the task succeeds.
    """

    policy: str = "lumion"
    spare: str | tuple[str, ...] = "auto"
    detect_within: Annotated[Seconds, Field(gt=0)] = 10.0
    recover_within: Annotated[Seconds, Field(gt=0)] = 60.0
    probe_within: Annotated[Seconds, Field(gt=0)] = 0.5
    attempts: Annotated[int, Field(ge=1, le=10)] = 2
    min_bandwidth: Annotated[float, Field(ge=0, le=1)] = 0.8

    @field_validator("policy")
    @classmethod
    def _installed(cls, value: str) -> str:
        return policy(value).name

    @model_validator(mode="after")
    def _deadlines_nest(self) -> RunArgs:
        if self.probe_within >= self.recover_within:
            raise ValueError("probe_within must be shorter than recover_within")
        return self

    @property
    def spares(self) -> tuple[str, ...]:
        if isinstance(self.spare, str):
            return () if self.spare == "auto" else (self.spare,)
        return self.spare


async def run(context: TaskContext, args: RunArgs) -> TaskResult:
    """Wait until a failure is detected, and recover by the policy."""
    job = context.resource(Jobs, Jobs).get(args.job)
    failover = Failover(
        context,
        job,
        context.resource(Watches, Watches).of(context, job, args.settings()),
        policy(args.policy),
        SpareChooser(context, job, args.spares, args.probe_within),
        FailoverSettings(args.detect_within, args.recover_within, args.attempts),
    )
    result = await failover.run()
    ratio = result["bandwidth_ratio"]
    if ratio is not None and ratio < args.min_bandwidth:
        raise TaskFailed(
            f"job {args.job} is back, but its collective runs at {ratio:.0%} of the rate before, "
            f"and at least {args.min_bandwidth:.0%} was asked for",
            remedy="look at the links of the new slice; lower min_bandwidth if that is expected",
            **result,
        )
    return result


def _plan_run(context: PlanContext, args: RunArgs) -> TaskPlan:
    spares = args.spares
    return TaskPlan(
        devices=spares,
        changes=(
            f"policy {args.policy}: {policy(args.policy).summary}",
            "circuits: computed when the failed host is known, from the links that exist then",
            f"spare: {', '.join(spares) or 'any healthy, free host of the rack'}",
        ),
        estimate_s=None,
        nested_deadlines_s={
            "detect_within": args.detect_within,
            "recover_within": args.recover_within,
            "detect_within + recover_within": args.detect_within + args.recover_within,
        },
    )


WATCH_MARKS = ("fault.first-symptom", "fault.detected", "detect.*")

TASKS = [
    TaskSpec(
        "failover.watch",
        "Watch a job for failures from now on, with several independent detectors.",
        WatchArgs,
        watch,
        plan=lambda context, args: TaskPlan(),
        marks=WATCH_MARKS,
        result={"detectors": list},
        short="job",
    ),
    TaskSpec(
        "failover.run",
        "Wait until a failure of a job is detected, and recover by a policy.",
        RunArgs,
        run,
        plan=_plan_run,
        deadline_s=120.0,
        marks=(
            *WATCH_MARKS,
            "failover.decided",
            "fabric.*",
            "job.regrouped",
            "job.restored",
            "job.first-good-step",
        ),
        result={
            "policy": str,
            "failed": list,
            "detected_by": str,
            "detectors": list,
            "spare": str,
            "spares": list,
            "refused": dict,
            "hosts": list,
            "links_added": list,
            "links_removed": list,
            "circuits_added": list,
            "circuits_removed": list,
            "attempts": int,
            "lost_steps": int,
            "bandwidth_before_bps": float,
            "bandwidth_after_bps": float,
            "bandwidth_ratio": float,
            "blast_radius": dict,
        },
    ),
]
