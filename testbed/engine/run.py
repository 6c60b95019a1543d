"""One run, from a checked playbook to a stored result and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testbed.engine.interrupts import Interrupts
from testbed.engine.outcomes import FAILED, INTERRUPTED, PASSED
from testbed.engine.recorder import Observer, Recorder
from testbed.engine.recover import recover_claimed, refuse_dirty
from testbed.engine.session import Claim, RackSession, claim_rack, open_session
from testbed.engine.trials import TrialOptions, TrialRunner
from testbed.errors import EXIT_EXPECTATION, EXIT_OK, InternalError, RackError, TestbedError
from testbed.playbook.model import Playbook
from testbed.playbook.plan import make_plan
from testbed.playbook.selection import Selection
from testbed.rack.lease import Holder
from testbed.rack.rack import Rack
from testbed.store.events import LOG, RUN_FINISHED, RUN_STARTED, SAFE_STATE
from testbed.store.header import run_header
from testbed.store.runid import new_run_id
from testbed.store.writer import RunWriter
from testbed.timing import clock
from testbed.timing.clock import WallAnchor
from testbed.timing.marks import Timeline

ERROR = "error"


@dataclass(frozen=True)
class RunOptions:
    """What to run, and how.

    :param state_dir: where leases and journals are; see :func:`testbed.engine.paths.state_dir`.
    :param keep_on_failure: leave the rack as the first failed trial left it, and end the run.
    :param wait_for_lease_s: how long to wait for the rack to come free, in seconds.
    :param recover_first: bring a dirty rack back instead of refusing it.
    :param observers: called with every event as it happens; they must be quick.
    """

    playbook: Playbook
    rack: Rack
    state_dir: Path
    seed: int = 0
    virtual: bool = False
    results_dir: Path = Path("results")
    tags: frozenset[str] = frozenset()
    skip_tags: frozenset[str] = frozenset()
    keep_on_failure: bool = False
    wait_for_lease_s: float = 0.0
    recover_first: bool = False
    observers: Sequence[Observer] = ()


@dataclass
class RunOutcome:
    """How a run ended.

    :ivar folder: the run's folder; ``None`` when it ended before anything was stored.
    :ivar status: ``passed``, ``failed`` (a trial or an expectation), ``error`` (it could not be
        carried out) or ``interrupted``.
    :ivar dirty: devices that are not known to be in their safe state, with the reason.
    """

    run_id: str
    folder: Path | None = None
    status: str = ERROR
    exit_code: int = EXIT_OK
    error: TestbedError | None = None
    dirty: dict[str, str] = field(default_factory=dict)


def execute(options: RunOptions, *, interrupts: Interrupts | None = None) -> RunOutcome:
    """Run a playbook. Starts the event loop itself, in real or in virtual time.

    Errors are part of the outcome; nothing that a user can cause is raised.

    :param interrupts: to interrupt the run from the program that called; signals do in any case.
    """
    run = _Run(options, interrupts or Interrupts())
    with run.interrupts.installed():
        try:
            clock.run(run.main, virtual=options.virtual, seed=options.seed)
        except Exception as error:
            run.note(error)
        return run.finish()


class _Run:
    """State of one run."""

    def __init__(self, options: RunOptions, interrupts: Interrupts) -> None:
        self._options = options
        self._recorder: Recorder | None = None
        self._trials: TrialRunner | None = None
        self.interrupts = interrupts
        self.outcome = RunOutcome(new_run_id(options.playbook.name))

    def note(self, error: BaseException) -> None:
        """Keep the first error that ended the run; later ones come of it."""
        if self.outcome.error is not None:
            return
        if self._recorder is not None:
            self.outcome.error = self._recorder.as_testbed_error(error)
        elif isinstance(error, TestbedError):
            self.outcome.error = error
        else:
            self.outcome.error = InternalError(f"{type(error).__name__}: {error}")
            self.outcome.error.__cause__ = error

    async def main(self) -> None:
        """Everything that happens in the event loop."""
        options = self._options
        selection = Selection(
            (*options.playbook.tasks, *options.playbook.always), options.tags, options.skip_tags
        )
        lease = claim_rack(
            options.rack,
            owner=self.outcome.run_id,
            state_dir=options.state_dir,
            virtual=options.virtual,
            wait_s=options.wait_for_lease_s,
            waiting=self._waiting,
        )
        claim: Claim | None = None
        with self.interrupts.stoppable():
            claim = await lease.__aenter__()
        if claim is None:
            return
        try:
            await self._with(claim, selection)
        except Exception as error:
            self.note(error)
        finally:
            await lease.__aexit__(None, None, None)

    async def _with(self, claim: Claim, selection: Selection) -> None:
        options = self._options
        if claim.dirty and options.recover_first:
            await recover_claimed(claim, self.interrupts)
        elif claim.dirty:
            refuse_dirty(claim)
        if self.interrupts.stopping:
            return
        timeline = self._start_log()
        plan = make_plan(
            options.playbook, options.rack, tags=options.tags, skip_tags=options.skip_tags
        )
        async with open_session(
            claim, timeline=timeline, run_id=self.outcome.run_id, seed=options.seed
        ) as session:
            with self.interrupts.stoppable() as preflight:
                await session.connect(plan.devices)
            if preflight.cancelled_caught or self.interrupts.stopping:
                return
            self._trials = TrialRunner(
                TrialOptions(options.playbook, selection, options.seed, options.keep_on_failure),
                session,
                self._log,
                self.interrupts,
            )
            try:
                await self._trials.run()
            except Exception as error:
                self.note(error)
            self._settle(session, self._trials)

    def _settle(self, session: RackSession, trials: TrialRunner) -> None:
        """Say of every device whether it is safe, and take those that are out of the journal."""
        timeline = session.timeline
        timeline.begin_trial(None)
        verdicts = dict(trials.safety)
        if trials.kept:
            verdicts |= dict.fromkeys(
                session.journal.changes, "left as the failed trial left it, as was asked for"
            )
        for name, why in verdicts.items():
            timeline.event(SAFE_STATE, device=name, safe=why is None, detail=why)
            if why is None:
                session.journal.settle(name)
        self.outcome.dirty = {name: why for name, why in verdicts.items() if why is not None}

    # --- the log ---------------------------------------------------------------------------

    @property
    def _log(self) -> Recorder:
        if self._recorder is None:
            raise InternalError("the run has no log yet")
        return self._recorder

    def _start_log(self) -> Timeline:
        options = self._options
        anchor = WallAnchor.take()
        header = run_header(
            run_id=self.outcome.run_id,
            playbook=options.playbook,
            rack=options.rack,
            seed=options.seed,
            virtual=options.virtual,
            anchor=anchor,
            options={
                "tags": sorted(options.tags),
                "skip_tags": sorted(options.skip_tags),
                "keep_on_failure": options.keep_on_failure,
            },
        )
        writer = RunWriter.create(options.results_dir, header)
        self.outcome.folder = writer.folder
        self._recorder = Recorder(writer, options.observers)
        timeline = Timeline(self._recorder, origin_s=anchor.monotonic_s)
        timeline.event(
            RUN_STARTED,
            run=self.outcome.run_id,
            playbook=options.playbook.name,
            rack=options.rack.name,
            backend=options.rack.backend_label,
            seed=options.seed,
            virtual=options.virtual,
            points=len(options.playbook.points()),
            trials=options.playbook.trials,
            warmup=options.playbook.warmup,
        )
        return timeline

    def _waiting(self, holder: Holder | None) -> None:
        """Tell those who watch; there is no log yet, for it may never come to a run."""
        event: dict[str, Any] = {"t": 0.0, "kind": LOG, "message": f"waiting for {holder}"}
        if holder is not None:
            event["holder"] = asdict(holder)
        for observe in self._options.observers:
            observe(event)

    # --- the end ---------------------------------------------------------------------------

    def finish(self) -> RunOutcome:
        """Decide how the run ended, store that, and return it. An interrupt from here on changes
        nothing: there is nothing left to stop."""
        outcome = self.outcome
        self._decide()
        if self._recorder is None:
            return outcome
        record = None if outcome.error is None else outcome.error.as_record()
        ending: dict[str, Any] = {
            "t": self._recorder.last_t,
            "status": outcome.status,
            "exit_code": outcome.exit_code,
            "error": record,
        }
        try:
            self._recorder.writer.finish(ending)
        except TestbedError as error:
            if outcome.error is None:
                outcome.error = error
            outcome.status, outcome.exit_code = ERROR, error.exit_code
        self._recorder.tell({"kind": RUN_FINISHED, **ending})
        return outcome

    def _decide(self) -> None:
        outcome, trials = self.outcome, self._trials
        interrupted = self.interrupts.exit_code
        if outcome.error is not None or trials is None:
            outcome.status = ERROR
        elif self._log.broken is not None:
            outcome.status, outcome.error = ERROR, self._log.broken
        elif trials.failure is not None:
            outcome.status, outcome.error = FAILED, trials.failure
        elif not trials.expectations_met:
            outcome.status = FAILED
            outcome.exit_code = EXIT_EXPECTATION
        elif outcome.dirty:
            outcome.status = ERROR
            outcome.error = _not_safe(outcome.dirty)
        else:
            outcome.status = PASSED
        if outcome.error is not None:
            outcome.exit_code = outcome.error.exit_code
        if interrupted is not None:
            outcome.status, outcome.exit_code = INTERRUPTED, interrupted


def _not_safe(devices: dict[str, str]) -> RackError:
    return RackError(
        "not in their safe state: " + "; ".join(f"{name}: {why}" for name, why in devices.items()),
        remedy="look at these devices, then bring them back with `testbed recover`",
        devices=list(devices),
    )
