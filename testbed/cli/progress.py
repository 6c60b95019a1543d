"""What a run shows while it goes on: a live line on a terminal, plain lines elsewhere.

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
from testbed.timing.clock import machine_s
from testbed.timing.quantity import format_seconds

REFRESH_S = 0.1
PLAIN_S = 5.0
"""Pause between two plain lines, so that a log of CI stays readable."""

_SHOWN = ("log", "fault", "cleanup", "safe-state")


class Progress:
    """An observer of events (see :mod:`testbed.store.events`)."""

    def __init__(
        self, console: Console, playbook: Playbook, *, verbose: bool, virtual: bool
    ) -> None:
        self._console = console
        self._verbose = verbose
        self._virtual = virtual
        self._total = len(playbook.points()) * (playbook.trials + playbook.warmup)
        self._measure = next(iter(playbook.measures), None)
        self._done = self._failed = 0
        self._task = "connecting"
        self._last = ""
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
            case "task.started":
                self._task = event["name"]
                if self._verbose:
                    self._line(event, event["name"])
            case "trial.finished":
                self._finished(event)
            case "safe-state" if not event["safe"]:
                self._line(event, f"not safe: {event['device']}: {event['detail']}")
            case kind if self._verbose and kind in _SHOWN:
                self._line(event, _words(event))
        now = machine_s()
        pause_s = REFRESH_S if self._live is not None else PLAIN_S
        if now - self._drawn_s >= pause_s:
            self._drawn_s = now
            self._draw()

    def _finished(self, event: dict[str, Any]) -> None:
        self._done += 1
        if event["status"] != "passed":
            self._failed += 1
            error = event.get("error") or {}
            self._line(event, f"{event['status']}: {error.get('message', '')}".rstrip(": "))
        value = event["measures"].get(self._measure) if self._measure else None
        self._last = f"{self._measure} {format_seconds(value)}" if value is not None else ""

    def _line(self, event: dict[str, Any], text: str) -> None:
        where = f"trial {event['trial']} " if "trial" in event else ""
        self._console.print(
            f"{format_seconds(event.get('t', 0.0)):>8} {where}{text}", markup=False, soft_wrap=True
        )

    def _draw(self) -> None:
        parts = [f"{self._done}/{self._total} trials"]
        if self._failed:
            parts.append(f"{self._failed} failed")
        if self._last:
            parts.append(f"last {self._last}")
        if self._task and not self._virtual:
            parts.append(self._task)
        text = " · ".join(parts)
        if self._live is not None:
            self._live.update(Text(text), refresh=True)
        elif self._done:
            encoding = self._console.encoding.lower()
            plain = text if encoding.startswith("utf") else text.replace(" · ", ", ")
            self._console.print(plain, markup=False, soft_wrap=True)


def _words(event: dict[str, Any]) -> str:
    match event["kind"]:
        case "log":
            return str(event["message"])
        case "fault":
            return f"fault {event['fault'].get('kind')} on {event['device']}"
        case _:
            name = event.get("name") or event.get("device")
            return f"{event['kind']} {name}: {event.get('status', 'safe')}"
