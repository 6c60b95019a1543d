"""Ctrl-C, once and twice.

The first interrupt ends what may be ended at any moment: scopes of :meth:`Interrupts.stoppable`.
The second ends cleanup too: scopes of :meth:`Interrupts.sheltered`, which nothing else can
cancel. Whatever is in neither goes on; an interrupt is never an exception that can surface in the
middle of a statement.

The handler is installed before the event loop starts and removed after the results are written, so
that an interrupt at any moment of a run is counted, and never lost between two mechanisms (which is
why it is not trio's own signal receiver, that lives inside the loop only). SIGTERM and SIGHUP count
as Ctrl-C does: a cancelled CI job and a closed terminal must not leave devices behind.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from testbed.errors import EXIT_INTERRUPTED, EXIT_INTERRUPTED_DIRTY

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Interrupts:
    """Counts interrupts of one run and ends what each of them ends."""

    def __init__(self) -> None:
        self.count = 0
        self._delivered = 0
        self._stoppable: list[trio.CancelScope] = []
        self._sheltered: list[trio.CancelScope] = []
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def stopping(self) -> bool:
        """Whether the run is to stop."""
        return self.count >= 1

    @property
    def abandoning(self) -> bool:
        """Whether cleanup is to be skipped."""
        return self.count >= 2

    @property
    def exit_code(self) -> int | None:
        """Exit code that the interrupts so far ask for; ``None`` without any."""
        if not self.stopping:
            return None
        return EXIT_INTERRUPTED_DIRTY if self.abandoning else EXIT_INTERRUPTED

    def interrupt(self) -> None:
        """Count one. May be called at any moment from the thread of the loop, also between two
        bytecodes of the loop itself, which is where signal handlers run."""
        self.count += 1
        if self._token is not None:
            try:
                self._token.run_sync_soon(self.deliver, idempotent=True)
            except trio.RunFinishedError:
                self._token = None

    def deliver(self) -> None:
        """Cancel what the interrupts so far end. Called in the loop."""
        if self._delivered == self.count:
            return
        self._delivered = self.count
        ending = self._stoppable + (self._sheltered if self.abandoning else [])
        for scope in ending:
            scope.cancel()

    @contextmanager
    def stoppable(self, *, deadline_s: float = float("inf")) -> Iterator[trio.CancelScope]:
        """A scope that the first interrupt cancels.

        :param deadline_s: of the scope, as an instant of the loop's clock.
        """
        with trio.CancelScope(deadline=deadline_s) as scope, self._listed(self._stoppable, scope):
            if self.stopping:
                scope.cancel()
            yield scope

    @contextmanager
    def sheltered(self) -> Iterator[trio.CancelScope]:
        """A scope that no cancellation reaches but that of the second interrupt."""
        with trio.CancelScope(shield=True) as scope, self._listed(self._sheltered, scope):
            if self.abandoning:
                scope.cancel()
            yield scope

    @contextmanager
    def _listed(self, scopes: list[trio.CancelScope], scope: trio.CancelScope) -> Iterator[None]:
        self._token = trio.lowlevel.current_trio_token()
        scopes.append(scope)
        try:
            yield
        finally:
            scopes.remove(scope)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Receive signals. Does nothing outside the main thread, where there are none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {}
        try:
            for number in SIGNALS:
                before[number] = signal.signal(number, lambda *_: self.interrupt())
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
