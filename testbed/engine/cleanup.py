"""The cleanup of a trial: it always runs, and a step of it that fails stops no other step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import trio

from testbed.engine.context import CleanupStep, Trial
from testbed.engine.interrupts import Interrupts
from testbed.engine.steps import StepRunner
from testbed.errors import TaskTimeout, TestbedError
from testbed.playbook.model import AnyStep
from testbed.store.events import CLEANUP
from testbed.timing.clock import now_s
from testbed.timing.quantity import format_seconds


async def clean_up(
    trial: Trial, steps: StepRunner, always: tuple[AnyStep, ...], interrupts: Interrupts
) -> list[TestbedError]:
    """Run the playbook's ``always``, then what tasks have left to clean up, last added first.

    In that order, since the playbook ends what it started by its own means before anything is
    taken down under it. Each step has its own fresh deadline, whatever was spent before, and is
    sheltered from the cancellation that caused the cleanup. A second interrupt skips what is left.

    :return: what went wrong, in order.
    """
    errors = []
    for step in _steps(trial, steps, always):
        error = await _run(trial, step, interrupts)
        if error is not None:
            errors.append(error)
    return errors


def _steps(trial: Trial, steps: StepRunner, always: tuple[AnyStep, ...]) -> Iterator[CleanupStep]:
    for step in always:
        yield CleanupStep(step.name, partial(steps.run_step, step), None)
    while trial.cleanups:  # a step may add another
        yield trial.cleanups.pop()


async def _run(trial: Trial, step: CleanupStep, interrupts: Interrupts) -> TestbedError | None:
    start_s = now_s()
    error: TestbedError | None = None
    with interrupts.sheltered() as shelter:
        try:
            # Its own scope, so that a deadline can be told from a second interrupt.
            with trio.CancelScope() as scope:
                if step.deadline_s is not None:
                    scope.deadline = start_s + step.deadline_s
                await step.run()
            if scope.cancelled_caught:
                error = _too_late(step, now_s() - start_s)
        except Exception as raised:
            error = trial.recorder.as_testbed_error(raised)
    if shelter.cancelled_caught:
        status = "skipped"
    elif error is None:
        status = "ok"
    else:
        status = "timeout" if isinstance(error, TaskTimeout) else "failed"
    extra: dict[str, Any] = {} if error is None else {"error": error.as_record()}
    trial.session.timeline.event(
        CLEANUP, name=step.name, status=status, elapsed_s=round(now_s() - start_s, 9), **extra
    )
    return error


def _too_late(step: CleanupStep, elapsed_s: float) -> TaskTimeout:
    return TaskTimeout(
        f"cleanup {step.name!r} was not done within {format_seconds(step.deadline_s or 0.0)}",
        deadline_s=step.deadline_s,
        elapsed_s=elapsed_s,
    )
