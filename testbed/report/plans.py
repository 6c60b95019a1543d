"""The plan of a playbook on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from testbed.report.terminal import line, plural
from testbed.timing.quantity import format_seconds


def render_plan(plan: Mapping[str, Any], expect: Sequence[str], console: Console) -> None:
    """Tasks with what they change, devices, lease, deadlines, and what is not known yet.

    Of a sweep the first point is shown in full; where others differ they say so.

    :param plan: the record of :meth:`testbed.playbook.plan.Plan.as_record`.
    :param expect: the expectations as written.
    """
    points = plan["points"]
    total = len(points) * (plan["trials"] + plan["warmup"])
    swept = f" over {plural(len(points), 'sweep point')}" if len(points) > 1 else ""
    line(console, f"{plan['playbook']} on rack {plan['rack']}: {plural(total, 'trial')}{swept}")
    line(console, "nothing is touched by this plan")
    first = points[0]
    if first["vars"]:
        line(console, "with " + ", ".join(f"{k}={v}" for k, v in first["vars"].items()))
    line(console)
    for number, task in enumerate(first["tasks"], start=1):
        _task(console, number, task)
    line(console)
    line(console, "devices " + ", ".join(_device(d) for d in plan["devices"]))
    line(console, f"lease   rack {plan['lease']}, unless in virtual time")
    more = "" if plan["complete"] else ", and what is unknown until run"
    line(console, f"time    about {format_seconds(plan['estimate_s'])} in all{more}")
    for text in expect:
        line(console, f"expect  {text}")


def _task(console: Console, number: int, task: Mapping[str, Any]) -> None:
    title = task["name"] if task["name"] == task["task"] else f"{task['name']} [{task['task']}]"
    notes = [task["section"]] if task["section"] != "tasks" else []
    if task["condition"] is not None:
        notes.append(f"when {task['condition']}")
    if task["skipped"]:
        notes.append("skipped")
    if task["repeats"] is None:
        notes.append("loop of unknown length")
    elif task["repeats"] != 1:
        notes.append(f"{task['repeats']} times")
    notes.append(f"deadline {format_seconds(task['deadline_s'])}")
    line(console, f"{number:>3} {title} ({', '.join(notes)})")
    for change in (*task["changes"], *(f"unknown until run: {u}" for u in task["unknown"])):
        line(console, change, indent=6)


def _device(device: Mapping[str, Any]) -> str:
    return f"{device['name']} ({device['driver']}, {device['backend']})"
