"""Parts of a plan: one task, one sweep point, one thing that cannot work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.source.places import Place


@dataclass(frozen=True)
class PlannedTask:
    """One task of a sweep point.

    :param section: ``tasks`` or ``always``, with ``rescue`` in front for what runs only after
        a failure.
    :param condition: ``when`` as written, if it cannot be told before; ``None`` otherwise.
    :param skipped: whether its condition is false at this point already.
    :param repeats: number of its loop's items; ``None`` when that is unknown until run.
    :param devices: names of the devices it uses; ``None`` when that is unknown until run.
    :param changes: lines for people: circuits, outlets, processes.
    :param estimate_s: in seconds, over all items; ``None`` when unknown until run.
    :param deadline_s: of one try, in seconds.
    :param nested_deadlines_s: deadlines inside the task, by name, in seconds.
    :param unknown: what is unknown until run, in words.
    """

    name: str
    task: str
    place: Place
    section: str
    deadline_s: float
    condition: str | None = None
    skipped: bool = False
    repeats: int | None = 1
    devices: tuple[str, ...] | None = ()
    changes: tuple[str, ...] = ()
    estimate_s: float | None = 0.0
    nested_deadlines_s: Mapping[str, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """As JSON-compatible fields."""
        return {
            "name": self.name,
            "task": self.task,
            "place": str(self.place),
            "section": self.section,
            "condition": self.condition,
            "skipped": self.skipped,
            "repeats": self.repeats,
            "devices": None if self.devices is None else list(self.devices),
            "changes": list(self.changes),
            "estimate_s": self.estimate_s,
            "deadline_s": self.deadline_s,
            "nested_deadlines_s": dict(self.nested_deadlines_s),
            "unknown": list(self.unknown),
        }


@dataclass(frozen=True)
class PlannedPoint:
    """The tasks of one trial at a sweep point.

    :param estimate_s: in seconds, of one trial; what is unknown counts nothing.
    :param complete: whether every task's time could be estimated.
    """

    vars: Mapping[str, Any]
    tasks: tuple[PlannedTask, ...]
    estimate_s: float
    complete: bool

    def as_record(self) -> dict[str, Any]:
        """As JSON-compatible fields."""
        return {
            "vars": dict(self.vars),
            "estimate_s": round(self.estimate_s, 6),
            "complete": self.complete,
            "tasks": [task.as_record() for task in self.tasks],
        }


@dataclass(frozen=True, order=True)
class PlanFault:
    """Something that cannot work, found by planning it."""

    place: Place
    message: str
    hint: str = ""
