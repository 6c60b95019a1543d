"""Runs one task step: its loop, its tries, its deadline, its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from testbed.engine.context import Context, Trial
from testbed.engine.names import NONE, Extra, Names, result_fields
from testbed.errors import (
    DeviceTimeout,
    InternalError,
    PlaybookError,
    TaskFailed,
    TaskTimeout,
    TestbedError,
)
from testbed.playbook.model import TaskStep
from testbed.store.events import TASK_FINISHED, TASK_STARTED
from testbed.timing.alarm import sleep
from testbed.timing.clock import now_s
from testbed.timing.marks import Span
from testbed.timing.quantity import format_seconds

TIMEOUTS = (TaskTimeout, DeviceTimeout)
"""What ``on_timeout`` speaks of: the deadline of the task, or of a device operation in it."""

Result = dict[str, Any]


class TaskRunner:
    """Runs task steps of one trial.

    * a loop runs over all items, also when one fails; then the step fails;
    * ``retries`` are further tries after a failure, or until ``until`` is true;
    * a timeout is no failure to try again, unless ``on_timeout`` says ``retry``; with
      ``continue`` the step ends there, registered as ``timeout``, and the next one runs;
    * with ``ignore_errors`` the failure is registered, and the next step runs;
    * a fault of the playbook, or a defect, is never tried again nor ignored.
    """

    def __init__(self, trial: Trial, names: Names) -> None:
        self._trial = trial
        self._names = names
        self._timeline = trial.session.timeline

    async def run(self, step: TaskStep, parent: Span | None) -> None:
        """Run the step and register its result. :raises TestbedError: when it fails."""
        if step.loop is None:
            result, failure = await self._tries(step, parent, NONE)
        else:
            result, failure = await self._loop(step, parent)
        if step.register is not None:
            self._names.values[step.register] = result
        if failure is not None:
            raise failure

    def skip(self, step: TaskStep) -> None:
        """Note that the step was not run, since its condition is false."""
        self._timeline.event(
            TASK_FINISHED, task=step.spec.name, name=self._names.title(step), status="skipped"
        )
        if step.register is not None:
            self._names.values[step.register] = result_fields("skipped")

    async def _loop(
        self, step: TaskStep, parent: Span | None
    ) -> tuple[Result, TestbedError | None]:
        results: list[Result] = []
        failures: list[TestbedError] = []
        for item in self._names.items(step):
            result, failure = await self._tries(step, parent, {"item": item})
            results.append(result)
            if failure is not None:
                failures.append(failure)
                if isinstance(failure, PlaybookError | InternalError):
                    break
        status = "ok" if all(result["ok"] for result in results) else "failed"
        summary = result_fields(
            status,
            elapsed_s=sum(result["elapsed_s"] for result in results),
            attempts=sum(result["attempts"] for result in results),
            error=failures[0] if failures else None,
            results=results,
        )
        if failures[1:]:
            failures[0].fields["also"] = [failure.as_record() for failure in failures[1:]]
        return summary, failures[0] if failures else None

    async def _tries(
        self, step: TaskStep, parent: Span | None, extra: Extra
    ) -> tuple[Result, TestbedError | None]:
        """Run the task until it succeeds, ``until`` is true, or no try is left."""
        attempt = 0
        while True:
            attempt += 1
            start_s = now_s()
            failure: TestbedError | None = None
            returned: Mapping[str, Any] = NONE
            try:
                returned = await self._once(step, parent, extra)
                result = {
                    **returned,
                    **result_fields("ok", elapsed_s=now_s() - start_s, attempts=attempt),
                }
                failure = self._not_yet(step, extra, result)
            except TestbedError as error:
                failure = error
            if failure is None:
                return result, None
            timeout = isinstance(failure, TIMEOUTS)
            result = {
                **returned,
                **result_fields(
                    "timeout" if timeout else "failed",
                    elapsed_s=now_s() - start_s,
                    attempts=attempt,
                    error=failure,
                ),
            }
            if isinstance(failure, PlaybookError | InternalError):
                return result, failure
            if timeout and step.on_timeout == "continue":
                return result, None
            final = timeout and step.on_timeout == "fail"
            if final or attempt > step.retries:
                return result, None if step.ignore_errors else failure
            await sleep(step.delay_s)

    def _not_yet(self, step: TaskStep, extra: Extra, result: Result) -> TaskFailed | None:
        """The failure of a task that succeeded while ``until`` is not true."""
        if step.until is None:
            return None
        bound = {**extra, step.register: result} if step.register else extra
        if self._names.holds(step.until, step, bound):
            return None
        tries = result["attempts"]
        return TaskFailed(
            f"{step.place}: {step.until!r} is not true after {tries} "
            + ("try" if tries == 1 else "tries"),
            task=step.spec.name,
            place=str(step.place),
        )

    async def _once(self, step: TaskStep, parent: Span | None, extra: Extra) -> Mapping[str, Any]:
        spec, timeline, names = step.spec, self._timeline, self._names
        args = names.arguments(step, extra)
        name = names.title(step, extra)
        limit_s = spec.deadline_s if step.deadline_s is None else step.deadline_s
        start_s = now_s()
        status = "cancelled"
        details: dict[str, Any] = {}
        # Tasks that never wait must not starve what runs beside them, nor miss an interrupt.
        await trio.lowlevel.checkpoint()
        with timeline.span(name, parent, task=spec.name) as span:
            timeline.event(
                TASK_STARTED, task=spec.name, name=name, place=str(step.place), span=span.id
            )
            try:
                with trio.CancelScope(deadline=start_s + limit_s) as scope:
                    returned = await spec.run(Context(self._trial, span), args) or NONE
                if scope.cancelled_caught:
                    raise self._too_late(step, name, limit_s, start_s)
                status = "ok"
                details["result"] = dict(returned)
            except Exception as raised:
                error = self._trial.recorder.as_testbed_error(raised)
                error.fields.setdefault("task", spec.name)
                error.fields.setdefault("place", str(step.place))
                status = "timeout" if isinstance(error, TIMEOUTS) else "failed"
                details["error"] = error.as_record()
                if error is raised:
                    raise
                raise error from raised
            finally:
                timeline.event(
                    TASK_FINISHED,
                    task=spec.name,
                    name=name,
                    span=span.id,
                    status=status,
                    elapsed_s=round(now_s() - start_s, 9),
                    **details,
                )
        if spec.sets_variables:
            names.values.update(returned)
        return returned

    def _too_late(self, step: TaskStep, name: str, limit_s: float, start_s: float) -> TaskTimeout:
        elapsed_s = now_s() - start_s
        cut_off = self._trial.session.doors.cut_off
        device = operation = None
        doing = ""
        if cut_off is not None and cut_off[2] >= start_s + limit_s:
            device, operation, _ = cut_off
            doing = f", while it waited for {operation} of {device}"
        return TaskTimeout(
            f"{step.place}: task {name!r} was not done within {format_seconds(limit_s)} "
            f"(elapsed: {format_seconds(elapsed_s)}){doing}",
            remedy="look at what it waited for; deadline: gives it more time, on_timeout: says "
            "what to do",
            task=step.spec.name,
            place=str(step.place),
            deadline_s=limit_s,
            elapsed_s=elapsed_s,
            device=device,
            operation=operation,
        )
