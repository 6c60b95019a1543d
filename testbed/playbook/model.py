"""A playbook as it is after its file has been read and checked.

Expressions (``{{ ... }}``) are still texts here; :mod:`testbed.playbook.expressions` renders
them, at validation with what is known then, and again when a task starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from testbed.playbook.task import TaskArgs, TaskSpec
from testbed.source.places import Place

OnTimeout = Literal["fail", "continue", "retry"]


@dataclass(frozen=True)
class Step:
    """Common parts of everything in a list of tasks.

    :param name: shown to people; defaults to the task's name.
    :param when: expression; the step is skipped when it is false.
    :param tags: for ``--tags`` and ``--skip-tags``.
    """

    name: str
    place: Place
    when: str | None = None
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class TaskStep(Step):
    """One task.

    :param args: arguments as written, expressions unrendered, in the long form.
    :param fixed: the arguments as checked, when there are no expressions in them.
    :param loop: list, or expression of one; the task runs once per ``item``.
    :param retries: further tries after the first; with ``until``, tries until it is true.
    :param delay_s: wait between tries, in seconds.
    :param deadline_s: of one try; ``None`` = the task's own default.
    """

    spec: TaskSpec = field(kw_only=True)
    args: Mapping[str, Any] = field(kw_only=True)
    fixed: TaskArgs | None = None
    register: str | None = None
    loop: Any = None
    until: str | None = None
    retries: int = 0
    delay_s: float = 1.0
    deadline_s: float | None = None
    on_timeout: OnTimeout = "fail"
    ignore_errors: bool = False


@dataclass(frozen=True)
class BlockStep(Step):
    """``block`` with ``rescue`` and ``always``, as in Ansible."""

    block: tuple[AnyStep, ...] = ()
    rescue: tuple[AnyStep, ...] = ()
    always: tuple[AnyStep, ...] = ()
    deadline_s: float | None = None


@dataclass(frozen=True)
class ParallelStep(Step):
    """Children that run together; all are waited for, then the first failure is raised."""

    children: tuple[AnyStep, ...] = ()
    deadline_s: float | None = None


AnyStep = TaskStep | BlockStep | ParallelStep


@dataclass(frozen=True)
class MeasureSpec:
    """A duration from the first mark ``start`` of a trial to the first mark ``end`` after it,
    or the ``value`` (an expression over registered results) with a ``unit``."""

    name: str
    place: Place
    start: str | None = None
    end: str | None = None
    value: str | None = None
    unit: str = "s"


@dataclass(frozen=True)
class Expectation:
    """A limit on a statistic of a measure: ``recovery.p95 < 1.2 s``; SI inside."""

    text: str
    place: Place
    measure: str
    statistic: str
    operator: str
    limit: float


@dataclass(frozen=True)
class Playbook:
    """A checked playbook.

    :param vars: variables of the file with their defaults, overridden by ``--vars``/``--set``.
    :param sweep: per variable, the values to run over; every combination is a sweep point.
    :param trials: counted trials per sweep point; ``warmup`` more run before and are marked.
    :param deadline_s: of one trial.
    """

    name: str
    source: str
    text: str
    sha256: str
    rack: str
    description: str = ""
    vars: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    trials: int = 1
    warmup: int = 0
    tasks: tuple[AnyStep, ...] = ()
    always: tuple[AnyStep, ...] = ()
    measures: Mapping[str, MeasureSpec] = field(default_factory=dict)
    expect: tuple[Expectation, ...] = ()
    deadline_s: float | None = None

    def points(self) -> tuple[Mapping[str, Any], ...]:
        """Sweep points, the last variable changing fastest; one empty point without a sweep."""
        points: list[dict[str, Any]] = [{}]
        for variable, values in self.sweep.items():
            points = [{**point, variable: value} for point in points for value in values]
        return tuple(points)
