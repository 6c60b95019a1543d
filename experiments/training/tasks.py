"""Tasks of a training job: ``job.start``, ``job.wait``, ``job.status``, ``job.stop``."""

from __future__ import annotations

import statistics
from typing import Annotated, Any, Literal

import trio
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from testbed.errors import TaskFailed
from testbed.hal.together import gather
from testbed.playbook.args import HostName
from testbed.playbook.task import (
    PlanContext,
    TaskArgs,
    TaskContext,
    TaskPlan,
    TaskResult,
    TaskSpec,
)
from testbed.timing.quantity import Seconds

from .job import Job, Jobs, JobSpec
from .options import ProgramOptions, options_of
from .worker import Standing
from .workloads import workload

KILL_DEADLINE_S = 5.0
TRAIN_PROGRAM = "testbed-train"
JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
PositiveCount = Annotated[int, Field(ge=1)]


class StartArgs(TaskArgs):
    """Arguments of ``job.start``; see :class:`experiments.training.job.JobSpec`."""

    id: JobId
    program: str = TRAIN_PROGRAM
    hosts: Annotated[tuple[HostName, ...], Field(min_length=2)]
    standby: tuple[HostName, ...] = ()
    model: str = "llama-nano"
    workers_per_host: PositiveCount = 1
    heartbeat: Annotated[Seconds, Field(gt=0)] = 0.1
    collective_timeout: Annotated[Seconds, Field(gt=0)] = 10.0
    checkpoint_every: Annotated[int, Field(ge=0)] = 10
    ready_within: Annotated[Seconds, Field(gt=0)] = 30.0
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("model")
    @classmethod
    def _known(cls, value: str) -> str:
        return workload(value).name

    @field_validator("options")
    @classmethod
    def _of_program(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Check the options of the program that comes with us; another's are its own affair."""
        if info.data.get("program") != TRAIN_PROGRAM:
            return value
        for name in value:
            if name not in ProgramOptions.model_fields:
                raise ValueError(
                    f"program {TRAIN_PROGRAM} has no option {name!r}; "
                    f"there are {', '.join(ProgramOptions.model_fields)}"
                )
        try:
            options_of(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ValueError(
                f"option {where} of {TRAIN_PROGRAM}: {first['msg'].removeprefix('Value error, ')}"
            ) from None
        return value

    @model_validator(mode="after")
    def _each_host_once(self) -> StartArgs:
        names = (*self.hosts, *self.standby)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"host {', '.join(twice)} is named more than once")
        if self.heartbeat >= self.collective_timeout:
            raise ValueError(
                "heartbeat must be shorter than collective_timeout: a worker is silent for "
                "the former before the latter can pass"
            )
        return self

    def spec(self) -> JobSpec:
        return JobSpec(
            id=self.id,
            program=self.program,
            model=self.model,
            hosts=self.hosts,
            standby=self.standby,
            workers_per_host=self.workers_per_host,
            heartbeat_s=self.heartbeat,
            collective_timeout_s=self.collective_timeout,
            checkpoint_every=self.checkpoint_every,
            options=self.options,
        )


async def start(context: TaskContext, args: StartArgs) -> TaskResult:
    """Start all workers, form the first process group, begin to train, and return then."""
    job = Job(context, args.spec())
    context.resource(Jobs, Jobs).add(job)
    context.add_cleanup(f"end job {args.id}", job.kill, deadline_s=KILL_DEADLINE_S)
    with trio.move_on_after(args.ready_within) as scope:
        launched = await gather(
            {
                "members": lambda: job.launch(args.hosts, Standing.MEMBER),
                "standby": lambda: job.launch(args.standby, Standing.STANDBY),
            }
        )
        members = launched["members"]
        await job.form(members)
        await job.resume(step=0)
    if scope.cancelled_caught:
        late = [w.name for w in job.workers if not w.ready]
        raise TaskFailed(
            f"job {args.id} was not ready within {args.ready_within:g} s: "
            + (f"no word from {', '.join(late)}" if late else "its process group did not form"),
            remedy="look whether the hosts of the slice are linked, and at ready_within",
            job=args.id,
            late=late,
        )
    context.mark("job.started", job=args.id)
    return {"hosts": list(job.hosts), "standby": list(args.standby), "workers": len(members)}


def _plan_start(context: PlanContext, args: StartArgs) -> TaskPlan:
    hosts = (*args.hosts, *args.standby)
    unlinked = [h for h in args.hosts if not any(link.touches(h) for link in context.links)]
    changes = [f"{args.program} starts on {host}" for host in hosts]
    changes += [f"{host} has no link yet; the job will wait for one" for host in unlinked]
    return TaskPlan(
        devices=hosts,
        changes=tuple(changes),
        estimate_s=2.0,
        nested_deadlines_s={"ready_within": args.ready_within},
    )


class WaitArgs(TaskArgs):
    """Arguments of ``job.wait``: exactly one thing to wait for."""

    id: JobId
    step: PositiveCount | None = None
    steps_after_recovery: PositiveCount | None = None
    state: Literal["running", "broken", "recovering", "stopped"] | None = None

    @model_validator(mode="after")
    def _one_thing(self) -> WaitArgs:
        given = [
            name
            for name in ("step", "steps_after_recovery", "state")
            if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise ValueError("give exactly one of step, steps_after_recovery and state")
        return self


async def wait(context: TaskContext, args: WaitArgs) -> TaskResult:
    """Wait for a step, for steps after the newest recovery, or for a state."""
    job = context.resource(Jobs, Jobs).get(args.id)
    if args.step is not None:
        await job.wait_step(args.step)
    elif args.steps_after_recovery is not None:
        if not job.recoveries:
            raise TaskFailed(
                f"job {args.id} has not recovered from anything",
                remedy="run failover.run before, or wait for a step",
            )
        await job.until(lambda: job.progress.good_since is not None)
        good_since = job.progress.good_since or 0
        # The first good step is the first of those that are waited for.
        await job.wait_step(good_since + args.steps_after_recovery - 1)
    else:
        await job.until(lambda: job.state == args.state)
    return _report(job)


class IdArgs(TaskArgs):
    """Arguments of tasks that need a job only."""

    id: JobId


async def status(context: TaskContext, args: IdArgs) -> TaskResult:
    """How far the job is."""
    return _report(context.resource(Jobs, Jobs).get(args.id))


async def stop(context: TaskContext, args: IdArgs) -> TaskResult:
    """Stop the job; a job that was never started in this trial is stopped already, so that
    the task can stand under ``always``."""
    try:
        job = context.resource(Jobs, Jobs).get(args.id)
    except TaskFailed:
        return {"stopped": False}
    await job.stop()
    return {"stopped": True}


def _report(job: Job) -> dict[str, Any]:
    progress = job.progress
    rates = progress.rates_bps
    return {
        "state": job.state,
        "step": progress.step,
        "loss": progress.loss,
        "tokens": progress.tokens,
        "checkpoint": progress.checkpoint,
        "generation": job.generation,
        "hosts": list(job.hosts),
        "rate_bps": statistics.median(rates) if rates else None,
    }


REPORT: dict[str, type] = {
    "state": str,
    "step": int,
    "loss": float,
    "tokens": int,
    "checkpoint": int,
    "generation": int,
    "hosts": list,
    "rate_bps": float,
}

TASKS = [
    TaskSpec(
        "job.start",
        "Start a training job on the hosts of a slice, with warm workers on its spares.",
        StartArgs,
        start,
        plan=_plan_start,
        deadline_s=60.0,
        marks=("job.started", "job.first-step"),
        result={"hosts": list, "standby": list, "workers": int},
    ),
    TaskSpec(
        "job.wait",
        "Wait for a step of a job, for steps after its recovery, or for a state.",
        WaitArgs,
        wait,
        plan=lambda context, args: TaskPlan(estimate_s=None),
        deadline_s=60.0,
        result=REPORT,
    ),
    TaskSpec(
        "job.status",
        "Tell how far a job is.",
        IdArgs,
        status,
        plan=lambda context, args: TaskPlan(),
        result=REPORT,
        short="id",
    ),
    TaskSpec(
        "job.stop",
        "Stop a job; does nothing when it does not run.",
        IdArgs,
        stop,
        plan=lambda context, args: TaskPlan(estimate_s=0.1),
        deadline_s=10.0,
        result={"stopped": bool},
        short="id",
    ),
]
