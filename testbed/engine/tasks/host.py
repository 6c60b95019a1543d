"""Tasks on hosts: commands, files, boot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import trio
from pydantic import Field

from testbed.errors import DeviceError, DeviceTimeout, TaskFailed
from testbed.hal.capabilities import Host
from testbed.hal.types import HostHealth
from testbed.playbook.args import HostName
from testbed.playbook.task import (
    PlanContext,
    TaskArgs,
    TaskContext,
    TaskPlan,
    TaskResult,
    TaskSpec,
)
from testbed.timing.clock import now_s
from testbed.timing.quantity import Seconds

SHOWN_CHARACTERS = 16_384
"""Of each output stream, what a result keeps; longer ones are stored as artefacts in full."""
ERROR_CHARACTERS = 400


class RunArgs(TaskArgs):
    """Arguments of ``host.run``.

    :ivar argv: program and arguments; there is no shell between.
    :ivar stdin: text for its standard input.
    :ivar exit_status: what counts as success; an empty list: anything.
    """

    host: HostName
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    stdin: str = ""
    exit_status: int | tuple[int, ...] = 0

    @property
    def expected(self) -> tuple[int, ...]:
        """Exit statuses that count as success; none: any."""
        return self.exit_status if isinstance(self.exit_status, tuple) else (self.exit_status,)


async def run(context: TaskContext, args: RunArgs) -> TaskResult:
    """Run a command to its end, and keep its exit status and output."""
    start_s = now_s()
    result = await context.device(args.host, Host).run(args.argv, stdin=args.stdin)
    if args.expected and result.exit_status not in args.expected:
        said = (result.stderr.strip() or result.stdout.strip())[-ERROR_CHARACTERS:]
        raise TaskFailed(
            f"{args.argv[0]} on {args.host} ended with exit status {result.exit_status}"
            + (f": {said}" if said else ", and said nothing"),
            host=args.host,
            argv=list(args.argv),
            exit_status=result.exit_status,
            stdout=result.stdout[-SHOWN_CHARACTERS:],
            stderr=result.stderr[-SHOWN_CHARACTERS:],
        )
    return {
        "exit_status": result.exit_status,
        "stdout": _kept(context, args, "stdout", result.stdout),
        "stderr": _kept(context, args, "stderr", result.stderr),
        "elapsed_s": now_s() - start_s,
    }


def _kept(context: TaskContext, args: RunArgs, stream: str, text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return text
    program = Path(args.argv[0]).name
    path = context.artefact(f"{args.host}-{program}-{context.trial}.{stream}.txt", text)
    return f"{text[:SHOWN_CHARACTERS]}\n[cut off; all {len(text)} characters are in {path}]"


class FileArgs(TaskArgs):
    """Arguments of ``host.put`` and ``host.get``.

    :ivar local: path on this machine.
    :ivar remote: path on the host.
    """

    host: HostName
    local: Path
    remote: str


async def put(context: TaskContext, args: FileArgs) -> TaskResult:
    """Copy a file to a host."""
    if not args.local.is_file():
        raise TaskFailed(f"{args.local} is no file; nothing was copied", local=str(args.local))
    await context.device(args.host, Host).put(args.local, args.remote)
    return {"bytes": args.local.stat().st_size}


async def get(context: TaskContext, args: FileArgs) -> TaskResult:
    """Copy a file from a host."""
    args.local.parent.mkdir(parents=True, exist_ok=True)
    await context.device(args.host, Host).get(args.remote, args.local)
    return {"bytes": args.local.stat().st_size}


class HealthArgs(TaskArgs):
    """Arguments of ``host.health``."""

    host: HostName


async def health(context: TaskContext, args: HealthArgs) -> TaskResult:
    """Read which boot a host is in, and for how long it has been up."""
    return _health_record(await context.device(args.host, Host).health())


class BootArgs(TaskArgs):
    """Arguments of ``host.wait-boot``.

    :ivar within: time for the host to answer.
    :ivar not_boot: identity of a boot that does not count, as ``host.health`` gives it:
        without it a host that has not gone down yet counts as booted.
    :ivar every: pause between two looks.
    :ivar look_within: time of one look; a host that is off may not even refuse.
    """

    host: HostName
    within: Annotated[Seconds, Field(gt=0)] = 300.0
    not_boot: str | None = None
    every: Annotated[Seconds, Field(gt=0)] = 0.5
    look_within: Annotated[Seconds, Field(gt=0)] = 5.0


async def wait_boot(context: TaskContext, args: BootArgs) -> TaskResult:
    """Wait until a host answers; sets the mark ``host.booted``."""
    host = context.device(args.host, Host)
    start_s = now_s()
    last = "no answer yet"
    while True:
        left_s = start_s + args.within - now_s()
        if left_s <= 0:
            raise DeviceTimeout(
                f"host {args.host} has not booted within {args.within:g} s (last seen: {last})",
                device=args.host,
                operation="wait-boot",
                deadline_s=args.within,
                elapsed_s=now_s() - start_s,
                last_state=last,
                remedy="look at its power and its console",
            )
        try:
            with trio.fail_after(min(args.look_within, left_s)):
                seen = await host.health()
        except DeviceError as error:
            last = error.message
        except trio.TooSlowError:
            last = f"no answer within {args.look_within:g} s"
        else:
            if seen.boot_id != args.not_boot:
                context.mark("host.booted", host=args.host)
                return {**_health_record(seen), "waited_s": now_s() - start_s}
            last = f"still in boot {seen.boot_id}, up for {seen.uptime_s:.0f} s"
        await trio.sleep(max(0.0, min(args.every, start_s + args.within - now_s())))


def _health_record(seen: HostHealth) -> dict[str, Any]:
    return {"boot_id": seen.boot_id, "uptime_s": seen.uptime_s}


def _plan_run(context: PlanContext, args: RunArgs) -> TaskPlan:
    return TaskPlan(
        devices=(args.host,),
        changes=(f"{args.host} runs {' '.join(args.argv)}",),
        estimate_s=None,
    )


def _plan_put(context: PlanContext, args: FileArgs) -> TaskPlan:
    return TaskPlan(
        devices=(args.host,), changes=(f"{args.host}: {args.remote} written",), estimate_s=None
    )


def _plan_get(context: PlanContext, args: FileArgs) -> TaskPlan:
    return TaskPlan(devices=(args.host,), changes=(f"{args.local} written",), estimate_s=None)


def _plan_health(context: PlanContext, args: HealthArgs) -> TaskPlan:
    return TaskPlan(devices=(args.host,), estimate_s=0.1)


def _plan_boot(context: PlanContext, args: BootArgs) -> TaskPlan:
    return TaskPlan(
        devices=(args.host,), estimate_s=None, nested_deadlines_s={"within": args.within}
    )


TASKS = [
    TaskSpec(
        "host.run",
        "Run a command on a host, without a shell, and keep its output.",
        RunArgs,
        run,
        plan=_plan_run,
        deadline_s=60.0,
        result={"exit_status": int, "stdout": str, "stderr": str, "elapsed_s": float},
    ),
    TaskSpec(
        "host.put",
        "Copy a file to a host.",
        FileArgs,
        put,
        plan=_plan_put,
        deadline_s=60.0,
        result={"bytes": int},
    ),
    TaskSpec(
        "host.get",
        "Copy a file from a host.",
        FileArgs,
        get,
        plan=_plan_get,
        deadline_s=60.0,
        result={"bytes": int},
    ),
    TaskSpec(
        "host.health",
        "Read which boot a host is in.",
        HealthArgs,
        health,
        plan=_plan_health,
        deadline_s=10.0,
        result={"boot_id": str, "uptime_s": float},
        short="host",
    ),
    TaskSpec(
        "host.wait-boot",
        "Wait until a host answers, in another boot than a given one.",
        BootArgs,
        wait_boot,
        plan=_plan_boot,
        deadline_s=310.0,
        marks=("host.booted",),
        result={"boot_id": str, "uptime_s": float, "waited_s": float},
        short="host",
    ),
]
