"""Plans the tasks of a playbook for one sweep point after the other, touching no device."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from testbed.errors import TestbedError
from testbed.playbook.args import RackNames
from testbed.playbook.expressions import evaluate, expression, render, texts_in
from testbed.playbook.expressions import template as compile_template
from testbed.playbook.model import AnyStep, BlockStep, ParallelStep, Playbook, TaskStep
from testbed.playbook.planned import PlanFault, PlannedPoint, PlannedTask
from testbed.playbook.selection import Selection
from testbed.playbook.task import TaskArgs, TaskPlan
from testbed.rack.circuits import Link, PlacedCircuit, links_in
from testbed.rack.rack import Rack

LATER = "when earlier tasks have run"


@dataclass
class _Context:
    """What a task's ``plan`` may look at: a :class:`testbed.playbook.task.PlanContext`."""

    rack: Rack
    links: set[Link]


@dataclass
class _Trial:
    """A trial as planned so far."""

    scope: Mapping[str, Any]
    context: _Context
    tasks: list[PlannedTask] = field(default_factory=list)
    complete: bool = True


class TaskPlanner:
    """Plans trials.

    :ivar faults: what cannot work, at whichever sweep point.
    """

    def __init__(self, rack: Rack, selection: Selection) -> None:
        self.faults: set[PlanFault] = set()
        self._rack = rack
        self._names = RackNames.of(rack)
        self._selection = selection
        self._args: dict[tuple[int, str], TaskArgs | None] = {}

    def point(self, playbook: Playbook, point: Mapping[str, Any]) -> PlannedPoint:
        """Plan one trial at a sweep point."""
        scope = {**playbook.vars, **point, "rack_name": self._rack.name}
        trial = _Trial(scope, _Context(self._rack, set(_links_of_safe_state(self._rack))))
        estimate_s = self._all(playbook.tasks, trial, "tasks", certain=True)
        estimate_s += self._all(playbook.always, trial, "always", certain=True)
        return PlannedPoint(point, tuple(trial.tasks), estimate_s, trial.complete)

    def _all(
        self, steps: Iterable[AnyStep], trial: _Trial, section: str, *, certain: bool
    ) -> float:
        return sum(self._step(step, trial, section, certain=certain) for step in steps)

    def _step(self, step: AnyStep, trial: _Trial, section: str, *, certain: bool) -> float:
        """Plan one step; returns its estimated time in seconds, unknown ones as zero."""
        if not self._selection.selects(step):
            return 0.0
        holds = self._condition(step.when, trial)
        if isinstance(step, TaskStep):
            if holds is False:
                trial.tasks.append(self._skipped(step, section))
                return 0.0
            return self._task(step, trial, section, certain=certain and holds is True)
        if holds is False:
            return 0.0
        certain = certain and holds is True
        if isinstance(step, ParallelStep):
            return max(
                (self._step(child, trial, section, certain=certain) for child in step.children),
                default=0.0,
            )
        return self._block(step, trial, section, certain=certain)

    def _block(self, step: BlockStep, trial: _Trial, section: str, *, certain: bool) -> float:
        estimate_s = self._all(step.block, trial, section, certain=certain)
        if step.rescue:
            # It runs after a failure only: it costs no time, and its links are not counted on.
            links = set(trial.context.links)
            self._all(step.rescue, trial, f"rescue of {section}", certain=False)
            trial.context.links = links
        return estimate_s + self._all(step.always, trial, section, certain=certain)

    def _condition(self, when: str | None, trial: _Trial) -> bool | None:
        """Whether a step runs; ``None`` when that is unknown until run."""
        if when is None:
            return True
        if not expression(when).names <= trial.scope.keys():
            return None
        return bool(evaluate(when, trial.scope))

    # --- tasks -----------------------------------------------------------------------------

    def _skipped(self, step: TaskStep, section: str) -> PlannedTask:
        return PlannedTask(
            name=step.name,
            task=step.spec.name,
            place=step.place,
            section=section,
            deadline_s=_deadline_s(step),
            condition=step.when,
            skipped=True,
        )

    def _task(self, step: TaskStep, trial: _Trial, section: str, *, certain: bool) -> float:
        unknown: list[str] = []
        condition = None
        if step.when is not None and self._condition(step.when, trial) is None:
            condition = step.when
            unknown.append("whether it runs")
        items = self._items(step, trial.scope)
        plans: list[TaskPlan | None] = []
        for item in items if items is not None else ():
            scope = trial.scope if step.loop is None else {**trial.scope, "item": item}
            args = self._arguments(step, scope)
            if args is None:
                plans.append(None)
                continue
            plans.append(self._plan(step, args, trial.context, unknown, certain=certain))
        if items is None:
            unknown.append("the items of its loop")
        if None in plans:
            unknown.append("its arguments")
        known = [plan for plan in plans if plan is not None]
        sure = items is not None and len(known) == len(plans)
        times = [plan.estimate_s for plan in known]
        estimate_s = sum(t for t in times if t is not None) if sure and None not in times else None
        if estimate_s is None:
            trial.complete = False
            unknown.append("its time")
        trial.tasks.append(
            PlannedTask(
                name=self._title(step, trial.scope),
                task=step.spec.name,
                place=step.place,
                section=section,
                deadline_s=_deadline_s(step),
                condition=condition,
                repeats=None if items is None else len(items),
                devices=_union(plan.devices for plan in known) if sure else None,
                changes=tuple(line for plan in known for line in plan.changes),
                estimate_s=estimate_s,
                nested_deadlines_s={
                    name: s for plan in known for name, s in plan.nested_deadlines_s.items()
                },
                unknown=tuple(unknown),
            )
        )
        return 0.0 if estimate_s is None else estimate_s

    def _title(self, step: TaskStep, scope: Mapping[str, Any]) -> str:
        if not _known(step.name, scope):
            return step.name
        return str(render(step.name, scope))

    def _items(self, step: TaskStep, scope: Mapping[str, Any]) -> Sequence[Any] | None:
        if step.loop is None:
            return (None,)
        if isinstance(step.loop, str):
            if not expression(step.loop).names <= scope.keys():
                return None
            return list(evaluate(step.loop, scope))
        return list(render(step.loop, scope)) if _known(step.loop, scope) else None

    def _arguments(self, step: TaskStep, scope: Mapping[str, Any]) -> TaskArgs | None:
        """The checked arguments; ``None`` when they are unknown until run."""
        if step.fixed is not None:
            return step.fixed
        if not _known(step.args, scope):
            return None
        rendered = render(step.args, scope)
        key = (id(step), json.dumps(rendered, sort_keys=True, default=repr))
        if key not in self._args:
            try:
                made = step.spec.args.model_validate(rendered, context=self._names)
            except ValidationError:
                # Only where a loop's items differ by sweep point can the loader have let it pass.
                made = None
            self._args[key] = made
        return self._args[key]

    def _plan(
        self,
        step: TaskStep,
        args: TaskArgs,
        context: _Context,
        unknown: list[str],
        *,
        certain: bool,
    ) -> TaskPlan | None:
        before = set(context.links)
        try:
            plan = step.spec.plan(context, args)
        except TestbedError as error:
            context.links = before
            if certain and self._fails_anyway(step, args):
                self.faults.add(PlanFault(step.place, error.message, error.remedy or ""))
            else:
                unknown.append(f"whether it can be done ({error.message})")
            return TaskPlan(estimate_s=None)
        limit_s = _deadline_s(step)
        for name, inner_s in plan.nested_deadlines_s.items():
            if inner_s >= limit_s:
                self.faults.add(
                    PlanFault(
                        step.place,
                        f"task {step.spec.name}: {name} is {inner_s:g} s, which does not fit "
                        f"into the task's deadline of {limit_s:g} s",
                        f"deadlines must nest: give deadline: more than {inner_s:g} s, or "
                        f"shorten {name}",
                    )
                )
        return plan

    def _fails_anyway(self, step: TaskStep, args: TaskArgs) -> bool:
        """Whether it also fails on an idle fabric: then no unseen change of links can help."""
        try:
            step.spec.plan(_Context(self._rack, set()), args)
        except TestbedError:
            return True
        return False


def _deadline_s(step: TaskStep) -> float:
    return step.spec.deadline_s if step.deadline_s is None else step.deadline_s


def _known(value: Any, scope: Mapping[str, Any]) -> bool:
    return all(compile_template(text).names <= scope.keys() for _, text in texts_in(value))


def _union(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))


def _links_of_safe_state(rack: Rack) -> Iterable[Link]:
    """Links that a trial begins with: those of the safe state, as far as it tells."""
    placed = [
        PlacedCircuit(switch, circuit)
        for switch, circuits in rack.safe_state.circuits.items()
        if circuits != "keep"
        for circuit in circuits
    ]
    return links_in(placed, rack.wiring)
