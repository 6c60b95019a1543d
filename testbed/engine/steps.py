"""Runs the steps of a playbook in their order: blocks, parallel parts, conditions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from testbed.engine.context import Trial
from testbed.engine.interrupts import Interrupts
from testbed.engine.names import Names
from testbed.engine.taskrun import TaskRunner
from testbed.errors import TaskTimeout, TestbedError
from testbed.hal.together import settle
from testbed.playbook.model import AnyStep, BlockStep, ParallelStep, TaskStep
from testbed.playbook.selection import Selection
from testbed.store.events import LOG
from testbed.timing.clock import now_s
from testbed.timing.marks import Span
from testbed.timing.quantity import format_seconds


class StepRunner:
    """Interprets steps for one trial.

    * tasks run in order; the first failure ends the list;
    * a failed ``block`` enters ``rescue``, and is mended when that succeeds; ``failure`` names
      what went wrong there. ``rescue`` is not for interrupts, nor for deadlines from outside;
    * ``always`` runs in any case, sheltered, and all of it: a step of it that fails does not stop
      the next; its first failure counts when the block had none;
    * ``parallel`` waits for all its children, whatever becomes of one, then fails with the first
      failure in the order of the file;
    * a deadline ends what is inside at once.
    """

    def __init__(
        self, trial: Trial, names: Names, selection: Selection, interrupts: Interrupts
    ) -> None:
        self.names = names
        self._tasks = TaskRunner(trial, names)
        self._timeline = trial.session.timeline
        self._selection = selection
        self._interrupts = interrupts

    async def run(self, steps: tuple[AnyStep, ...], parent: Span | None = None) -> None:
        """Run steps in order. :raises TestbedError: of the first that fails."""
        for step in steps:
            await self.run_step(step, parent)

    async def run_step(self, step: AnyStep, parent: Span | None = None) -> None:
        """Run one step, if its tags are chosen and its condition is true."""
        if not self._selection.selects(step):
            return
        wanted = step.when is None or self.names.holds(step.when, step)
        if isinstance(step, TaskStep):
            if wanted:
                await self._tasks.run(step, parent)
            else:
                self._tasks.skip(step)
        elif wanted and isinstance(step, BlockStep):
            await self._block(step, parent)
        elif wanted and isinstance(step, ParallelStep):
            await self._parallel(step, parent)

    async def _block(self, step: BlockStep, parent: Span | None) -> None:
        failure: TestbedError | None = None
        with self._timeline.span(self.names.title(step), parent) as span:
            try:
                try:
                    await self._within(step, partial(self.run, step.block, span))
                except TestbedError as error:
                    failure = error
                    if step.rescue:
                        failure = await self._rescue(step, span, error)
            finally:
                late = await self._always(step, span)
            if failure is None and late:
                failure = late.pop(0)
            if failure is not None:
                if late:
                    failure.fields["also"] = [error.as_record() for error in late]
                raise failure

    async def _rescue(
        self, step: BlockStep, span: Span, cause: TestbedError
    ) -> TestbedError | None:
        self.names.values["failure"] = cause.as_record()
        try:
            await self.run(step.rescue, span)
        except TestbedError as error:
            error.__cause__ = cause
            return error
        return None

    async def _always(self, step: BlockStep, span: Span) -> list[TestbedError]:
        errors = []
        for each in step.always:
            with self._interrupts.sheltered():
                try:
                    await self.run_step(each, span)
                except TestbedError as error:
                    # Told here, because an interrupt that goes on from here tells nothing.
                    self._timeline.event(LOG, message=f"always: {error.message}")
                    errors.append(error)
        return errors

    async def _parallel(self, step: ParallelStep, parent: Span | None) -> None:
        with self._timeline.span(self.names.title(step), parent) as span:
            works = {
                number: partial(self.run_step, child, span)
                for number, child in enumerate(step.children)
            }

            async def together() -> None:
                _, errors = await settle(works)
                failures = list(errors.values())
                if failures[1:]:
                    failures[0].fields["also"] = [f.as_record() for f in failures[1:]]
                if failures:
                    raise failures[0]

            await self._within(step, together)

    async def _within(
        self, step: BlockStep | ParallelStep, work: Callable[[], Awaitable[None]]
    ) -> None:
        if step.deadline_s is None:
            await work()
            return
        start_s = now_s()
        with trio.CancelScope(deadline=start_s + step.deadline_s) as scope:
            await work()
        if scope.cancelled_caught:
            raise TaskTimeout(
                f"{step.place}: {step.name!r} was not done within "
                f"{format_seconds(step.deadline_s)}",
                place=str(step.place),
                deadline_s=step.deadline_s,
                elapsed_s=now_s() - start_s,
            )
