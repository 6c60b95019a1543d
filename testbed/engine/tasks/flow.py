"""Tasks that touch no device: waiting, marking, logging, checking, setting variables."""

from __future__ import annotations

from typing import Annotated, Any

import trio
from pydantic import ConfigDict, Field, model_validator

from testbed.errors import TaskFailed
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

MarkName = Annotated[str, Field(pattern=r"^[a-z0-9]+(?:[.-][a-z0-9]+)*$")]


class WaitArgs(TaskArgs):
    """Arguments of ``wait``."""

    duration: Seconds


async def wait(context: TaskContext, args: WaitArgs) -> TaskResult:
    """Wait for a time. To wait for a condition, use ``until`` on the task that reads it."""
    start_s = now_s()
    await trio.sleep(args.duration)
    return {"waited_s": now_s() - start_s}


class LogArgs(TaskArgs):
    """Arguments of ``log``."""

    message: str


async def log(context: TaskContext, args: LogArgs) -> TaskResult:
    """Write a line to the event log."""
    context.log(args.message)
    return None


class MarkArgs(TaskArgs):
    """Arguments of ``mark``.

    :ivar name: lower-case words with dots and dashes between, as ``load.applied``.
    """

    name: MarkName


async def mark(context: TaskContext, args: MarkArgs) -> TaskResult:
    """Record a mark now, for measures from or to it."""
    return {"t_s": context.mark(args.name).t_s}


class AssertArgs(TaskArgs):
    """Arguments of ``assert``.

    :ivar that: truth values, as expressions give them: ``"{{ soak.failed == 0 }}"``.
    :ivar message: what it means when one of them is false.
    """

    that: bool | tuple[bool, ...]
    message: str = ""

    @model_validator(mode="before")
    @classmethod
    def _truth(cls, data: Any) -> Any:
        """Refuse what is no truth value instead of guessing: a text is true whatever it says."""
        if isinstance(data, dict) and "that" in data:
            values = data["that"] if isinstance(data["that"], list | tuple) else [data["that"]]
            for value in values:
                if not isinstance(value, bool):
                    raise ValueError(
                        f"{value!r} is no truth value; write an expression, as "
                        "{{ result.failed == 0 }}"
                    )
            if not values:
                raise ValueError("that is empty: there is nothing to check")
        return data


async def check(context: TaskContext, args: AssertArgs) -> TaskResult:
    """Fail unless everything is true."""
    values = args.that if isinstance(args.that, tuple) else (args.that,)
    false = [number for number, value in enumerate(values, start=1) if not value]
    if false:
        which = f" (number {', '.join(map(str, false))} of {len(values)})" if values[1:] else ""
        raise TaskFailed(
            f"{args.message or 'what was asserted is false'}{which}", false=false, of=len(values)
        )
    return None


class FailArgs(TaskArgs):
    """Arguments of ``fail``."""

    message: str


async def fail(context: TaskContext, args: FailArgs) -> TaskResult:
    """Fail with a message; with ``when``, a check with words of its own."""
    raise TaskFailed(args.message)


class SetArgs(TaskArgs):
    """Arguments of ``set``: variables with their values."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @model_validator(mode="after")
    def _something(self) -> SetArgs:
        if not self.model_extra:
            raise ValueError("name at least one variable")
        bad = [name for name in self.model_extra if not name.isidentifier()]
        if bad:
            raise ValueError(f"{bad[0]!r} is no name of a variable")
        return self


async def set_variables(context: TaskContext, args: SetArgs) -> TaskResult:
    """Set variables for the tasks that follow in this trial: they are the fields of the result."""
    return dict(args.model_extra or {})


def _plan_wait(context: PlanContext, args: WaitArgs) -> TaskPlan:
    return TaskPlan(estimate_s=args.duration)


def _plan_nothing(context: PlanContext, args: TaskArgs) -> TaskPlan:
    return TaskPlan()


TASKS = [
    TaskSpec(
        "wait",
        "Wait for a time.",
        WaitArgs,
        wait,
        plan=_plan_wait,
        deadline_s=86400.0,
        result={"waited_s": float},
        short="duration",
    ),
    TaskSpec(
        "log", "Write a line to the event log.", LogArgs, log, plan=_plan_nothing, short="message"
    ),
    TaskSpec(
        "mark",
        "Record a mark, for measures from or to it.",
        MarkArgs,
        mark,
        plan=_plan_nothing,
        marks=("*",),
        result={"t_s": float},
        short="name",
    ),
    TaskSpec(
        "assert",
        "Fail unless everything is true.",
        AssertArgs,
        check,
        plan=_plan_nothing,
        short="that",
    ),
    TaskSpec("fail", "Fail with a message.", FailArgs, fail, plan=_plan_nothing, short="message"),
    TaskSpec(
        "set",
        "Set variables for the tasks that follow.",
        SetArgs,
        set_variables,
        plan=_plan_nothing,
        sets_variables=True,
    ),
]
