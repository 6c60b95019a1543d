"""How a task is declared, and what it may use while it runs.

A task is one coroutine and a declaration. Packages give theirs as a list of
:class:`TaskSpec` through the entry-point group ``testbed.tasks``; the built-in ones are found
in the same way. Example::

    class WaitArgs(TaskArgs):
        duration: Seconds

    async def wait(context: TaskContext, args: WaitArgs) -> TaskResult:
        await trio.sleep(args.duration)
        return {"waited_s": args.duration}

    TASKS = [TaskSpec("wait", "Wait for a time.", WaitArgs, wait, result={"waited_s": float})]
"""

from __future__ import annotations

import functools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from testbed.errors import InternalError
from testbed.rack.links import Link
from testbed.rack.rack import Rack
from testbed.timing.marks import Mark, Span, Timeline

Capability = TypeVar("Capability")
Resource = TypeVar("Resource")
TaskResult = Mapping[str, Any] | None


class TaskArgs(BaseModel):
    """Base of the arguments of a task: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Fabric(Protocol):
    """All switches of the rack as one: links between host interfaces."""

    async def links(self) -> frozenset[Link]:
        """Links that exist now, read back from the switches."""

    async def change(
        self,
        *,
        add: Sequence[Link] = (),
        remove: Sequence[Link] = (),
        wait_link_up: bool = True,
        mark: bool = True,
    ) -> Any:
        """Set up and take down links in one ``apply`` per switch, all switches in parallel.

        Sets the marks ``fabric.sent``, ``fabric.acknowledged``, ``fabric.verified`` and, when
        the interfaces at both ends of every added link report a carrier, ``fabric.link-up``.
        Nothing to do sets no mark. Returns a :class:`testbed.rack.fabric.FabricReport`.
        """

    async def replace(self, failed: str, spare: str, *, within: Sequence[str]) -> Any:
        """Put the spare where the failed host was in the slice of the hosts ``within``:
        computed by :func:`testbed.rack.links.replacement` from the links that exist."""


class TaskContext(Protocol):
    """What the engine gives to a running task.

    :ivar rack: the checked rack, with its wiring.
    :ivar fabric: the switches as links.
    :ivar timeline: marks and spans of this trial.
    :ivar run_id: tag for processes that a task starts on hosts.
    :ivar trial: number of the trial, counted from 0; warm-up trials included.
    :ivar rng: generator of this trial, seeded by the run's seed and the trial's number.
    :ivar virtual: whether time is virtual.
    """

    @property
    def rack(self) -> Rack: ...
    @property
    def fabric(self) -> Fabric: ...
    @property
    def timeline(self) -> Timeline: ...
    @property
    def run_id(self) -> str: ...
    @property
    def trial(self) -> int: ...
    @property
    def rng(self) -> random.Random: ...
    @property
    def virtual(self) -> bool: ...

    def device(self, name: str, capability: type[Capability]) -> Capability:
        """The device behind its guard: every operation has a deadline, is journalled before it
        changes anything, checked against the lease, and recorded.

        :raises RackError: when there is no such device, or it lacks the capability.
        """

    def mark(self, name: str, **fields: Any) -> Mark:
        """Record a mark now; shorthand for ``timeline.mark``."""

    def span(self, name: str, **fields: Any) -> AbstractContextManager[Span]:
        """Record an interval under the span of the running task."""

    def log(self, message: str, **fields: Any) -> None:
        """Write a line to the event log, shown with ``--verbose``."""

    def start_soon(self, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        """Run something in the background until the trial ends. An exception in it fails the
        trial at the task that is running then."""

    def add_cleanup(
        self, name: str, step: Callable[[], Awaitable[None]], *, deadline_s: float = 10.0
    ) -> Callable[[], None]:
        """Run ``step`` when the trial ends, however it ends; last added, first run; each with
        its own fresh, shielded deadline. Returns a function that takes the step back."""

    def resource(self, kind: type[Resource], make: Callable[[], Resource]) -> Resource:
        """One object of that type for the whole trial, shared by the tasks that ask for it."""

    def artefact(self, name: str, text: str) -> str:
        """Store a text with the run; returns its path relative to the run's folder."""


class PlanContext(Protocol):
    """What a task's ``plan`` may look at: the rack, and what earlier tasks have promised."""

    @property
    def rack(self) -> Rack: ...
    @property
    def links(self) -> set[Link]:
        """Links as they will be at this point, changed in place by tasks that change them."""


@dataclass(frozen=True)
class TaskPlan:
    """What a task will touch, as far as it can be known without touching anything.

    :param devices: names of the devices that it uses.
    :param changes: lines for people: circuits set up or taken down, outlets switched, ...
    :param estimate_s: estimated duration, in seconds; ``None`` = unknown until run.
    :param nested_deadlines_s: deadlines inside the task, by name, which must be shorter than
        the deadline of the task.
    """

    devices: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    estimate_s: float | None = 0.0
    nested_deadlines_s: Mapping[str, float] = field(default_factory=dict)


def _no_plan(context: PlanContext, args: Any) -> TaskPlan:
    return TaskPlan(estimate_s=None)


@dataclass(frozen=True)
class TaskSpec:
    """A task as it is registered.

    :param name: dotted name in playbooks, as ``fabric.connect``.
    :param summary: one sentence for ``testbed schema`` and the reference.
    :param args: model of its arguments. Where ``short`` names a field, a playbook may write the
        value alone: ``wait: 2 s``.
    :param run: the coroutine.
    :param plan: what it will touch; called without any device.
    :param deadline_s: deadline when the playbook gives none.
    :param marks: names of the marks that it may set, so that a measure's name can be checked;
        a name may end in ``*``.
    :param result: fields of its result with their types: an expression may use no others.
    :param sets_variables: the fields of the result become variables of the trial.
    """

    name: str
    summary: str
    args: type[TaskArgs]
    run: Callable[[Any, Any], Awaitable[TaskResult]]
    plan: Callable[[PlanContext, Any], TaskPlan] = _no_plan
    deadline_s: float = 30.0
    marks: tuple[str, ...] = ()
    result: Mapping[str, type] = field(default_factory=dict)
    short: str | None = None
    sets_variables: bool = False


@functools.cache
def task_specs() -> Mapping[str, TaskSpec]:
    """All installed tasks by name. :raises InternalError: for a broken or doubled entry."""
    found: dict[str, TaskSpec] = {}
    for point in sorted(entry_points(group="testbed.tasks"), key=lambda p: p.name):
        try:
            specs = point.load()
        except Exception as error:
            raise InternalError(
                f"tasks {point.name!r} ({point.value}) cannot be loaded: {error}",
                remedy="reinstall or remove the package that provides them",
            ) from error
        for spec in specs:
            if spec.name in found:
                raise InternalError(f"two packages register the task {spec.name!r}")
            found[spec.name] = spec
    return dict(sorted(found.items()))
