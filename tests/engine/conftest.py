"""An engine on the built-in mock rack, with tasks made of plain coroutine functions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic import ConfigDict

from testbed.engine.interrupts import Interrupts
from testbed.engine.run import RunOptions, RunOutcome, execute
from testbed.playbook.model import AnyStep, BlockStep, ParallelStep, Playbook, TaskStep
from testbed.playbook.task import TaskArgs, TaskPlan, TaskSpec
from testbed.rack.loader import load_rack
from testbed.rack.rack import Rack
from testbed.source.places import Place

PLACE = Place("test.yaml", 1, 1)
Body = Callable[..., Awaitable[Any]]


class AnyArgs(TaskArgs):
    """Takes whatever a test gives."""

    model_config = ConfigDict(extra="allow", frozen=True)


def task(
    run: Body,
    name: str | None = None,
    *,
    devices: tuple[str, ...] = (),
    spec_deadline_s: float = 1000.0,
    args: dict[str, Any] | None = None,
    sets_variables: bool = False,
    **keys: Any,
) -> TaskStep:
    """A step that runs ``run(context, args)``; ``keys`` are those of the step."""
    name = name or getattr(run, "__name__", "task")
    spec = TaskSpec(
        name,
        "",
        AnyArgs,
        run,
        plan=lambda context, given: TaskPlan(devices=devices),
        deadline_s=spec_deadline_s,
        sets_variables=sets_variables,
    )
    fixed = AnyArgs() if args is None else None
    return TaskStep(name=name, place=PLACE, spec=spec, args=args or {}, fixed=fixed, **keys)


def block(*steps: AnyStep, name: str = "block", **keys: Any) -> BlockStep:
    return BlockStep(name=name, place=PLACE, block=steps, **keys)


def parallel(*steps: AnyStep, **keys: Any) -> ParallelStep:
    return ParallelStep(name="parallel", place=PLACE, children=steps, **keys)


class Engine:
    """Runs playbooks made in a test, and keeps what it saw.

    :ivar events: all events of the last run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rack: Rack = load_rack("mock")
        self.events: list[dict[str, Any]] = []
        self.interrupts = Interrupts()
        self._calls: list[tuple[float, Callable[[], None]]] = []

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    def at(self, t_s: float, call: Callable[[], None]) -> None:
        """Have something happen at an instant of the next run, in virtual time."""
        self._calls.append((t_s, call))

    def playbook(self, *tasks: AnyStep, **keys: Any) -> Playbook:
        return Playbook(
            name="test",
            source=str(self.folder / "test.yaml"),
            text="",
            sha256="",
            rack="mock",
            tasks=tasks,
            **keys,
        )

    def execute(
        self,
        *tasks: AnyStep,
        virtual: bool = True,
        options: dict[str, Any] | None = None,
        **keys: Any,
    ) -> RunOutcome:
        self.events = []
        return execute(
            RunOptions(
                self.playbook(*tasks, **keys),
                self.rack,
                state_dir=self.state_dir,
                results_dir=self.folder / "results",
                virtual=virtual,
                observers=(self._observe, *(options or {}).pop("observers", ())),
                **(options or {}),
            ),
            interrupts=self.interrupts,
        )

    def _observe(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event["kind"] == "run.started":
            clock: Any = trio.lowlevel.current_clock()
            for t_s, call in self._calls:
                clock.call_at(clock.current_time() + t_s, call)
            self._calls.clear()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def stored(self, outcome: RunOutcome) -> list[dict[str, Any]]:
        assert outcome.folder is not None
        lines = (outcome.folder / "events.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


@pytest.fixture(scope="session")
def make_engine() -> Callable[[Path], Engine]:
    return Engine


@pytest.fixture(scope="session")
def make_task() -> Callable[..., TaskStep]:
    return task


@pytest.fixture(scope="session")
def make_block() -> Callable[..., BlockStep]:
    return block


@pytest.fixture(scope="session")
def make_parallel() -> Callable[..., ParallelStep]:
    return parallel
