"""Spans and marks in the trace format of Chrome, which Perfetto (ui.perfetto.dev) opens.

One lane for each device, each name of a span and each source of marks. Intervals that overlap
without nesting (a task that runs twice in parallel) get a second lane, as a lane cannot show them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.store.encoding import compact_json
from testbed.store.events import DEVICE, FAULT, MARK, SPAN, TRIAL_FINISHED, TRIAL_STARTED, Event
from testbed.store.exports.exporter import Exporter
from testbed.store.reader import StoredRun

_PROCESS = 1
_MICROSECONDS = 1e6
_FRAME = frozenset({"t", "kind", "name", "id", "parent", "end", "elapsed_s"})


def write(run: StoredRun, path: Path) -> None:
    """Write the trace of a run."""
    about = {"run": run.id, "backend": run.backend, "rack": run.rack, "virtual": run.virtual}
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{"displayTimeUnit": "ms", "otherData": {compact_json(about)},\n')
        file.write('"traceEvents": [\n')
        title = f"{run.playbook or run.id} ({run.backend})"
        file.write(compact_json(_named("process_name", title, 0)))
        for entry in _entries(run):
            file.write(",\n" + compact_json(entry))
        file.write("\n]}\n")


def _entries(run: StoredRun) -> Iterator[dict[str, Any]]:
    lanes = _Lanes()
    started: dict[int, float] = {}
    for event in run.events():
        kind = event["kind"]
        if kind == SPAN:
            yield from lanes.interval(event["name"], event["name"], event["t"], event["end"], event)
        elif kind == DEVICE:
            # Recorded when the operation has ended.
            start_s = event["t"] - (event.get("elapsed_s") or 0.0)
            lane = f"device {event['device']}"
            yield from lanes.interval(lane, event["operation"], start_s, event["t"], event)
        elif kind == TRIAL_STARTED:
            started[event["trial"]] = event["t"]
        elif kind == TRIAL_FINISHED:
            start_s = started.pop(event["trial"], event["t"])
            yield from lanes.interval("trials", f"trial {event['trial']}", start_s, event["t"], {})
        elif kind == MARK:
            lane = f"marks of {event.get('source', 'controller')}"
            yield from lanes.instant(lane, event["name"], event["t"], event)
        elif kind == FAULT:
            fault = event.get("fault")
            what = fault.get("kind") if isinstance(fault, dict) else fault
            name = f"fault on {event.get('device')}: {what}"
            yield from lanes.instant("faults", name, event["t"], event)


class _Lanes:
    """Hands out lanes (threads, in the words of the format) in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._busy_until_s: dict[str, float] = {}

    def interval(
        self, lane: str, name: str, start_s: float, end_s: float, event: Event
    ) -> Iterator[dict[str, Any]]:
        """A complete event, in the first lane of that name that is free since its start."""
        free, turn = lane, 1
        while self._busy_until_s.get(free, 0.0) > start_s:
            turn += 1
            free = f"{lane} ({turn})"
        self._busy_until_s[free] = end_s
        yield from self._declared(free)
        yield {
            **self._place(free, name, start_s, event),
            "ph": "X",
            "dur": round((end_s - start_s) * _MICROSECONDS, 3),
        }

    def instant(self, lane: str, name: str, at_s: float, event: Event) -> Iterator[dict[str, Any]]:
        """An instant event."""
        yield from self._declared(lane)
        yield {**self._place(lane, name, at_s, event), "ph": "i", "s": "t"}

    def _declared(self, lane: str) -> Iterator[dict[str, Any]]:
        if lane not in self._numbers:
            self._numbers[lane] = len(self._numbers) + 1
            yield _named("thread_name", lane, self._numbers[lane])

    def _place(self, lane: str, name: str, at_s: float, event: Event) -> dict[str, Any]:
        return {
            "name": name,
            "pid": _PROCESS,
            "tid": self._numbers[lane],
            "ts": round(at_s * _MICROSECONDS, 3),
            "args": {key: value for key, value in event.items() if key not in _FRAME},
        }


def _named(what: str, name: str, lane: int) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": _PROCESS, "tid": lane, "args": {"name": name}}


EXPORTER = Exporter("chrome", ".trace.json", "Spans and marks for Chrome and Perfetto.", write)
