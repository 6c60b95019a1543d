"""What tasks see: one :class:`Trial` a trial, one :class:`Context` a running task."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import trio

from testbed.engine.recorder import Recorder
from testbed.engine.session import RackSession
from testbed.errors import TestbedError
from testbed.playbook.task import Fabric
from testbed.rack.rack import Rack
from testbed.store.events import LOG
from testbed.timing.marks import Mark, Span, Timeline

Capability = TypeVar("Capability")
Resource = TypeVar("Resource")
Work = Callable[[], Awaitable[None]]


@dataclass(eq=False)
class CleanupStep:
    """One step of the cleanup of a trial.

    :ivar deadline_s: in seconds; ``None`` when what it runs has deadlines of its own.
    """

    name: str
    run: Work
    deadline_s: float | None


@dataclass(eq=False)
class Trial:
    """State of one trial.

    :ivar number: counted from 0 over the run, warm-up trials included.
    :ivar background: nursery of what runs beside the tasks; ends with the trial.
    :ivar body: scope of the tasks under test.
    :ivar failure: with what something in the background has failed.
    :ivar over: nothing may be started any more.
    """

    session: RackSession
    recorder: Recorder
    number: int
    rng: random.Random
    background: trio.Nursery
    body: trio.CancelScope | None = None
    cleanups: list[CleanupStep] = field(default_factory=list)
    resources: dict[type, Any] = field(default_factory=dict)
    failure: TestbedError | None = None
    over: bool = False

    def stop(self) -> None:
        """End the tasks under test now."""
        if self.body is not None:
            self.body.cancel()

    def start_soon(self, work: Work, name: str) -> None:
        """Run something beside the tasks. When it fails, the trial fails at the task that runs
        then; a failure during the cleanup is kept, and stops nothing. After the trial nothing
        is started: a late call back of a device is no defect."""
        if self.over:
            return

        async def guarded() -> None:
            try:
                await work()
            except Exception as error:
                if self.failure is None:
                    self.failure = self.recorder.as_testbed_error(error)
                    self.failure.fields.setdefault("background", name)
                    self.stop()

        self.background.start_soon(guarded, name=name)


class Context:
    """The :class:`testbed.playbook.task.TaskContext` of one running task."""

    __slots__ = ("_span", "_trial")

    def __init__(self, trial: Trial, span: Span | None) -> None:
        self._trial = trial
        self._span = span

    @property
    def rack(self) -> Rack:
        return self._trial.session.rack

    @property
    def fabric(self) -> Fabric:
        return self._trial.session.fabric

    @property
    def timeline(self) -> Timeline:
        return self._trial.session.timeline

    @property
    def run_id(self) -> str:
        return self._trial.session.run_id

    @property
    def trial(self) -> int:
        return self._trial.number

    @property
    def rng(self) -> random.Random:
        return self._trial.rng

    @property
    def virtual(self) -> bool:
        return self._trial.session.virtual

    def device(self, name: str, capability: type[Capability]) -> Capability:
        return self._trial.session.device(name, capability)

    def mark(self, name: str, **fields: Any) -> Mark:
        return self.timeline.mark(name, **fields)

    def span(self, name: str, **fields: Any) -> AbstractContextManager[Span]:
        return self.timeline.span(name, self._span, **fields)

    def log(self, message: str, **fields: Any) -> None:
        self.timeline.event(LOG, message=message, **fields)

    def start_soon(self, work: Work, *, name: str) -> None:
        self._trial.start_soon(work, name)

    def add_cleanup(self, name: str, step: Work, *, deadline_s: float = 10.0) -> Callable[[], None]:
        cleanups = self._trial.cleanups
        entry = CleanupStep(name, step, deadline_s)
        cleanups.append(entry)

        def take_back() -> None:
            if entry in cleanups:
                cleanups.remove(entry)

        return take_back

    def resource(self, kind: type[Resource], make: Callable[[], Resource]) -> Resource:
        resources = self._trial.resources
        if kind not in resources:
            resources[kind] = make()
        found: Resource = resources[kind]
        return found

    def artefact(self, name: str, text: str) -> str:
        return self._trial.recorder.artefact(f"trial{self._trial.number}/{name}", text)
