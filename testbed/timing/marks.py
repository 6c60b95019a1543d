"""Marks (named instants) and spans (named intervals with a parent) of one run.

A :class:`Timeline` is written by the engine and by tasks, read by measures, and passes
every event on to a sink (the run's event log). All times are seconds since the start of
the run, on the controller's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from testbed.timing.clock import now_s

Event = dict[str, Any]
EventSink = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Mark:
    """A named instant.

    :param name: dotted name, as ``fault.injected``.
    :param t_s: seconds since the start of the run.
    :param error_s: bound of the error of ``t_s``: zero on the controller's own clock, the
        bound of the offset estimate for a mark that a remote host reported.
    :param source: who saw it: ``controller`` or the name of a host.
    """

    name: str
    t_s: float
    error_s: float = 0.0
    source: str = "controller"
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Span:
    """A named interval; ``end_s`` is ``None`` while it is open."""

    id: int
    name: str
    start_s: float
    parent: int | None
    end_s: float | None = None
    status: str = "open"
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def duration_s(self) -> float | None:
        return None if self.end_s is None else self.end_s - self.start_s


class Timeline:
    """Marks and spans of the current trial; every event goes to the sink as it happens.

    Events are flat dictionaries with at least ``t`` (seconds since the start of the run)
    and ``kind``; see :mod:`testbed.store.events` for all kinds.
    """

    def __init__(self, sink: EventSink, *, origin_s: float | None = None) -> None:
        self._sink = sink
        self.origin_s = now_s() if origin_s is None else origin_s
        self.trial: int | None = None
        self.marks: list[Mark] = []
        self._span_ids = 0

    def elapsed_s(self) -> float:
        """Seconds since the start of the run."""
        return now_s() - self.origin_s

    def begin_trial(self, trial: int | None) -> None:
        """Forget the marks of the trial before; events carry ``trial`` from here on."""
        self.trial = trial
        self.marks = []

    def event(self, kind: str, /, *, t_s: float | None = None, **fields: Any) -> None:
        """Write one event to the sink."""
        record: Event = {"t": round(self.elapsed_s() if t_s is None else t_s, 9), "kind": kind}
        if self.trial is not None:
            record["trial"] = self.trial
        record.update(fields)
        self._sink(record)

    def mark(
        self,
        name: str,
        /,
        *,
        at_s: float | None = None,
        error_s: float = 0.0,
        source: str = "controller",
        **fields: Any,
    ) -> Mark:
        """Record a mark now, or at ``at_s`` on the scale of :func:`now_s`."""
        instant = (now_s() if at_s is None else at_s) - self.origin_s
        mark = Mark(name, instant, error_s, source, fields)
        self.marks.append(mark)
        extra: dict[str, Any] = dict(fields)
        if error_s:
            extra["error_s"] = error_s
        if source != "controller":
            extra["source"] = source
        self.event("mark", t_s=instant, name=name, **extra)
        return mark

    def find(self, name: str, *, after_s: float | None = None) -> Mark | None:
        """The first mark of that name in this trial, at or after ``after_s`` (run time)."""
        found = [m for m in self.marks if m.name == name and (after_s is None or m.t_s >= after_s)]
        return min(found, key=lambda mark: mark.t_s, default=None)

    @contextmanager
    def span(self, name: str, parent: Span | None = None, **fields: Any) -> Iterator[Span]:
        """Record an interval; its status is ``ok``, ``failed`` or ``cancelled``."""
        self._span_ids += 1
        span = Span(
            id=self._span_ids,
            name=name,
            start_s=self.elapsed_s(),
            parent=None if parent is None else parent.id,
            fields=fields,
        )
        try:
            yield span
        except Exception:
            span.status = "failed"
            raise
        except BaseException:
            span.status = "cancelled"
            raise
        else:
            span.status = "ok"
        finally:
            span.end_s = self.elapsed_s()
            self.event(
                "span",
                t_s=span.start_s,
                name=name,
                id=span.id,
                parent=span.parent,
                end=round(span.end_s, 9),
                status=span.status,
                **span.fields,
            )
