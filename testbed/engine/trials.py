"""Runs the trials of a playbook, point by point of its sweep."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trio

from testbed.engine.cleanup import clean_up
from testbed.engine.context import Trial
from testbed.engine.interrupts import Interrupts
from testbed.engine.names import Names
from testbed.engine.outcomes import (
    FAILED,
    INTERRUPTED,
    PASSED,
    PointValues,
    TrialOutcome,
    Verdict,
    verdicts,
)
from testbed.engine.recorder import Recorder
from testbed.engine.safestate import Verdicts, make_safe
from testbed.engine.session import RackSession
from testbed.engine.steps import StepRunner
from testbed.errors import (
    InternalError,
    LeaseError,
    PlaybookError,
    RackError,
    TaskTimeout,
    TestbedError,
)
from testbed.playbook.args import RackNames
from testbed.playbook.expressions import ExpressionError, evaluate
from testbed.playbook.model import MeasureSpec, Playbook
from testbed.playbook.selection import Selection
from testbed.store.events import (
    EXPECTATION,
    POINT_STARTED,
    SAFE_STATE,
    TRIAL_FINISHED,
    TRIAL_STARTED,
)
from testbed.timing.measures import duration_s
from testbed.timing.phases import phase_durations_s
from testbed.timing.quantity import format_seconds

STOPPING = (InternalError, LeaseError, PlaybookError)
"""Failures after which further trials would end in the same way."""


class NotReady(RackError):
    """The rack could not be brought to the state from which a trial starts."""

    kind = "not-ready"


@dataclass(frozen=True)
class TrialOptions:
    """What decides how trials run.

    :ivar keep_on_failure: leave the rack as the first failed trial left it, and end the run.
    """

    playbook: Playbook
    selection: Selection
    seed: int
    keep_on_failure: bool = False


class TrialRunner:
    """Runs all trials of one run.

    Every trial starts from the safe state of the rack, which was read back after the trial
    before it (before the first: at the start), and is stored durably before the next one starts.

    :ivar failure: what made the first trial fail that failed.
    :ivar expectations_met: whether all that were checked are.
    :ivar safety: by device, why it is not safe, as of the last check; ``None`` when it is.
    :ivar kept: whether a failed trial was left as it is.
    """

    def __init__(
        self,
        options: TrialOptions,
        session: RackSession,
        recorder: Recorder,
        interrupts: Interrupts,
    ) -> None:
        self._options = options
        self._playbook = options.playbook
        self._session = session
        self._timeline = session.timeline
        self._recorder = recorder
        self._interrupts = interrupts
        self._rack_names = RackNames.of(session.rack)
        self._number = 0
        self.failure: TestbedError | None = None
        self.expectations_met = True
        self.safety: Verdicts = {}
        self.kept = False

    async def run(self) -> None:
        """Run until all trials are done, one of them ends the run, or an interrupt comes.

        :raises NotReady: when the state from which trials start cannot be reached.
        """
        playbook = self._playbook
        await self._make_safe()
        for number, values in enumerate(playbook.points()):
            self._timeline.begin_trial(None)
            self._timeline.event(POINT_STARTED, point=number, vars={**playbook.vars, **values})
            point = PointValues()
            for index in range(playbook.warmup + playbook.trials):
                if self._interrupts.stopping:
                    return
                await self._require_safe()
                warmup = index < playbook.warmup
                outcome = await self._one(number, values, warmup)
                if not warmup:
                    point.add(outcome)
                if outcome.error is not None and self.failure is None:
                    self.failure = outcome.error
                if outcome.stops:
                    return
            self._judge(number, point)

    # --- between trials --------------------------------------------------------------------

    async def _make_safe(self) -> None:
        self.safety = await make_safe(
            self._session, self._session.journal.changes, self._interrupts
        )

    @property
    def unsafe(self) -> dict[str, str]:
        """Devices that are not known to be safe, with the reason."""
        return {name: why for name, why in self.safety.items() if why is not None}

    async def _require_safe(self) -> None:
        if self.unsafe and not self._interrupts.stopping:
            await self._make_safe()
        if self.unsafe:
            raise NotReady(
                "the state from which a trial starts cannot be reached: "
                + "; ".join(f"{name}: {why}" for name, why in self.unsafe.items()),
                remedy="no further trial was run; look at these devices, then run again",
                devices=list(self.unsafe),
            )

    def _judge(self, number: int, point: PointValues) -> None:
        self._timeline.begin_trial(None)
        found: list[Verdict] = verdicts(self._playbook.expect, point, seed=self._options.seed)
        for verdict in found:
            self._timeline.event(EXPECTATION, **verdict.as_fields(), point=number)
        self.expectations_met = self.expectations_met and all(v.passed for v in found)

    # --- one trial -------------------------------------------------------------------------

    async def _one(self, point: int, values: Mapping[str, Any], warmup: bool) -> TrialOutcome:
        number = self._number
        self._number += 1
        self._timeline.begin_trial(number)
        self._timeline.event(TRIAL_STARTED, point=point, warmup=warmup)
        outcome = TrialOutcome()
        names = Names(self._start_values(number, values), self._rack_names)
        async with trio.open_nursery() as background:
            trial = Trial(
                self._session,
                self._recorder,
                number,
                random.Random(f"{self._options.seed}/trial/{number}"),
                background,
            )
            steps = StepRunner(trial, names, self._options.selection, self._interrupts)
            await self._body(trial, steps, outcome)
            self.kept = self._options.keep_on_failure and outcome.status == FAILED
            if not self.kept:
                await self._clean_up(trial, steps, outcome)
            trial.over = True
            background.cancel_scope.cancel()
        outcome.measures = {n: self._measure(m, names) for n, m in self._playbook.measures.items()}
        outcome.phases = phase_durations_s(self._timeline)
        if not self.kept:
            await self._make_safe()
            for name, why in self.unsafe.items():
                self._timeline.event(SAFE_STATE, device=name, safe=False, detail=why)
        self._finish(point, warmup, outcome)
        return outcome

    async def _body(self, trial: Trial, steps: StepRunner, outcome: TrialOutcome) -> None:
        """The tasks under test."""
        limit_s = self._playbook.deadline_s
        end_s = math.inf if limit_s is None else trio.current_time() + limit_s
        self._recorder.on_broken = trial.stop
        try:
            with self._interrupts.stoppable(deadline_s=end_s) as trial.body:
                await steps.run(self._playbook.tasks)
        except Exception as error:
            outcome.error = self._recorder.as_testbed_error(error)
        self._recorder.on_broken = lambda: None
        cut = trial.body is not None and trial.body.cancelled_caught
        trial.body = None
        if trial.failure is not None or self._recorder.broken is not None:
            outcome.error = trial.failure or self._recorder.broken
        elif self._interrupts.stopping and (cut or outcome.error is not None):
            outcome.status = INTERRUPTED
        elif cut and outcome.error is None:
            outcome.error = TaskTimeout(
                f"trial {trial.number} was not done within {format_seconds(limit_s or 0.0)}",
                deadline_s=limit_s,
                elapsed_s=limit_s,
            )
        elif outcome.error is None:
            outcome.status = PASSED

    async def _clean_up(self, trial: Trial, steps: StepRunner, outcome: TrialOutcome) -> None:
        errors = await clean_up(trial, steps, self._playbook.always, self._interrupts)
        if trial.failure is not None and trial.failure is not outcome.error:
            errors.append(trial.failure)  # in the background, during the cleanup
        if not errors:
            return
        if outcome.error is None:
            outcome.error = errors.pop(0)
        if errors:
            outcome.error.fields["cleanup"] = [error.as_record() for error in errors]
        if outcome.status == PASSED:
            outcome.status = FAILED  # what cannot be cleaned up was not done right

    def _finish(self, point: int, warmup: bool, outcome: TrialOutcome) -> None:
        outcome.stops = (
            outcome.status == INTERRUPTED or self.kept or isinstance(outcome.error, STOPPING)
        )
        self._timeline.event(
            TRIAL_FINISHED,
            point=point,
            warmup=warmup,
            status=outcome.status,
            measures=outcome.measures,
            phases=outcome.phases,
            error=None if outcome.error is None else outcome.error.as_record(),
        )
        self._recorder.sync()
        if self._recorder.broken is not None:
            outcome.stops = True
            outcome.error = self._recorder.broken

    def _start_values(self, number: int, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **self._playbook.vars,
            **values,
            "trial": number,
            "run_id": self._session.run_id,
            "rack_name": self._session.rack.name,
        }

    def _measure(self, measure: MeasureSpec, names: Names) -> float | None:
        if measure.value is None:
            return duration_s(self._timeline, str(measure.start), str(measure.end))
        try:
            value = evaluate(measure.value, names.values)
        except ExpressionError:
            return None  # the task that gives it did not run, or did not succeed
        return float(value) if isinstance(value, int | float) else None
