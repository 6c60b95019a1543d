"""What a run will do, as far as it can be known without touching anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.playbook.model import Playbook
from testbed.playbook.planned import PlanFault, PlannedPoint
from testbed.playbook.planner import TaskPlanner
from testbed.playbook.selection import Selection
from testbed.rack.rack import Rack


@dataclass(frozen=True)
class Plan:
    """What a run will do.

    :param devices: devices that have to be there, in the order of the rack file. Where a task's
        devices are unknown until run, they are all devices of the rack.
    :param faults: what cannot work; a playbook that was loaded has none.
    """

    playbook: str
    source: str
    rack: str
    devices: tuple[str, ...]
    backends: Mapping[str, str]
    drivers: Mapping[str, str]
    trials: int
    warmup: int
    deadline_s: float | None
    points: tuple[PlannedPoint, ...]
    faults: tuple[PlanFault, ...] = ()

    @property
    def lease(self) -> str:
        """The rack that the run holds for itself; not taken in virtual time."""
        return self.rack

    @property
    def deadlines_nest(self) -> bool:
        """Whether every deadline inside a task is shorter than the task's own."""
        return all(
            inner < task.deadline_s
            for point in self.points
            for task in point.tasks
            for inner in task.nested_deadlines_s.values()
        )

    @property
    def estimate_s(self) -> float:
        """Of the whole run, in seconds; what is unknown counts nothing."""
        return (self.trials + self.warmup) * sum(point.estimate_s for point in self.points)

    @property
    def complete(self) -> bool:
        """Whether every task's time could be estimated."""
        return all(point.complete for point in self.points)

    def as_record(self) -> dict[str, Any]:
        """As JSON-compatible fields, for ``testbed plan --format json``."""
        return {
            "playbook": self.playbook,
            "source": self.source,
            "rack": self.rack,
            "lease": self.lease,
            "devices": [
                {"name": n, "driver": self.drivers[n], "backend": self.backends[n]}
                for n in self.devices
            ],
            "trials": self.trials,
            "warmup": self.warmup,
            "deadline_s": self.deadline_s,
            "deadlines_nest": self.deadlines_nest,
            "estimate_s": round(self.estimate_s, 6),
            "complete": self.complete,
            "points": [point.as_record() for point in self.points],
            "faults": [
                {"place": str(f.place), "message": f.message, "hint": f.hint} for f in self.faults
            ],
        }


def make_plan(
    playbook: Playbook,
    rack: Rack,
    *,
    tags: Iterable[str] = (),
    skip_tags: Iterable[str] = (),
) -> Plan:
    """Plan every sweep point.

    :raises PlaybookError: for a tag that no step has.
    """
    selection = Selection(
        (*playbook.tasks, *playbook.always), frozenset(tags), frozenset(skip_tags)
    )
    planner = TaskPlanner(rack, selection)
    points = tuple(planner.point(playbook, point) for point in playbook.points())
    return Plan(
        playbook=playbook.name,
        source=playbook.source,
        rack=rack.name,
        devices=_devices(rack, points),
        backends=rack.backends,
        drivers={name: entry.driver.name for name, entry in rack.devices.items()},
        trials=playbook.trials,
        warmup=playbook.warmup,
        deadline_s=playbook.deadline_s,
        points=points,
        faults=tuple(sorted(planner.faults)),
    )


def _devices(rack: Rack, points: Iterable[PlannedPoint]) -> tuple[str, ...]:
    named: set[str] = set()
    for point in points:
        for task in point.tasks:
            if task.devices is None:
                return tuple(rack.devices)
            named.update(task.devices)
    return tuple(name for name in rack.devices if name in named)
