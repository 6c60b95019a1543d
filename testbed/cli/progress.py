"""What a run shows while it goes on: live lines on a terminal, plain lines elsewhere.

Drawing is paced by the machine's clock, so that thousands of trials in virtual time cost nothing,
and happens between events only: no thread disturbs the timing of a run.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from testbed.playbook.model import Playbook
from testbed.report.terminal import words
from testbed.timing.clock import machine_s
from testbed.timing.quantity import format_seconds, format_value

REFRESH_S = 0.1
PLAIN_S = 5.0
"""Pause between two plain lines, so that a log of CI stays readable."""

_SHOWN = ("log", "fault", "cleanup", "safe-state")


class Running:
    """Statistics of one value so far, in constant space. Exact ones come at the end."""

    def __init__(self) -> None:
        self.n = 0
        self.mean = 0.0
        self.low = float("inf")
        self.high = float("-inf")

    def add(self, value: float) -> None:
        self.n += 1
        self.mean += (value - self.mean) / self.n
        self.low = min(self.low, value)
        self.high = max(self.high, value)


class Progress:
    """An observer of events (see :mod:`testbed.store.events`)."""

    def __init__(
        self, console: Console, playbook: Playbook, *, verbose: bool, virtual: bool
    ) -> None:
        self._console = console
        self._verbose = verbose
        self._virtual = virtual
        self._points = len(playbook.points())
        self._total = self._points * (playbook.trials + playbook.warmup)
        first = next(iter(playbook.measures.values()), None)
        self._measure = None if first is None else first.name
        self._unit = "" if first is None else first.unit
        self._done = self._failed = 0
        self._point = ""
        self._task = "connecting"
        self._last: float | None = None
        self._so_far = Running()
        self._phases: dict[str, float | None] = {}
        self._drawn_s = 0.0
        self._live = (
            Live(console=console, auto_refresh=False, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        match event["kind"]:
            case "point.started":
                self._begin_point(event)
            case "task.started":
                self._task = event["name"]
                if self._verbose:
                    self._line(event, event["name"])
            case "trial.finished":
                self._finished(event)
            case "safe-state" if not event["safe"]:
                self._line(event, f"not safe: {event['device']}: {event['detail']}")
            case kind if self._verbose and kind in _SHOWN:
                self._line(event, _sentence(event))
        now = machine_s()
        pause_s = REFRESH_S if self._live is not None else PLAIN_S
        if now - self._drawn_s >= pause_s:
            self._drawn_s = now
            self._draw()

    def _begin_point(self, event: dict[str, Any]) -> None:
        """Trials of different points are not mixed."""
        self._so_far = Running()
        self._last, self._phases = None, {}
        if self._points > 1:
            swept = ", ".join(f"{name}={value}" for name, value in event["vars"].items())
            self._point = f"point {event['point'] + 1}/{self._points}: {swept}"

    def _finished(self, event: dict[str, Any]) -> None:
        self._done += 1
        if event["status"] != "passed":
            self._failed += 1
            error = event.get("error") or {}
            self._line(event, f"{event['status']}: {error.get('message', '')}".rstrip(": "))
        self._last = event["measures"].get(self._measure) if self._measure else None
        if self._last is not None and not event["warmup"]:
            self._so_far.add(self._last)
        self._phases = event["phases"]

    def _line(self, event: dict[str, Any], text: str) -> None:
        where = f"trial {event['trial']} " if "trial" in event else ""
        self._print(f"{format_seconds(event.get('t', 0.0)):>8} {where}{text}")

    def _draw(self) -> None:
        parts = [f"{self._done}/{self._total} trials"]
        if self._failed:
            parts.append(f"{self._failed} failed")
        if self._point:
            parts.append(self._point)
        if self._last is not None:
            parts.append(f"last {self._measure} {format_value(self._last, self._unit)}")
        if self._task and not self._virtual:
            parts.append(self._task)
        summary = " · ".join(parts)
        if self._live is not None:
            lines = [summary, *self._statistics(), *self._waterfall()]
            text = words(self._console, "\n".join(lines))
            self._live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)
        elif self._done:
            self._print(summary)

    def _statistics(self) -> list[str]:
        """The first measure over the trials of this point."""
        found = self._so_far
        if found.n < 2:
            return []
        mean, low, high = (format_value(v, self._unit) for v in (found.mean, found.low, found.high))
        return [f"{self._measure}: mean {mean}, {low} – {high}, n {found.n}"]

    def _waterfall(self) -> list[str]:
        """Phases of the last trial in one line."""
        known = [f"{n} {format_seconds(s)}" for n, s in self._phases.items() if s is not None]
        return [" → ".join(known)] if known else []

    def _print(self, text: str) -> None:
        self._console.print(words(self._console, text), markup=False, soft_wrap=True)


def _sentence(event: dict[str, Any]) -> str:
    match event["kind"]:
        case "log":
            return str(event["message"])
        case "fault":
            return f"fault {event['fault'].get('kind')} on {event['device']}"
        case _:
            name = event.get("name") or event.get("device")
            return f"{event['kind']} {name}: {event.get('status', 'safe')}"
